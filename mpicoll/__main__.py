"""python -m mpicoll: what `python -m mpicoll.doctor` finds wrong, in short."""

from .doctor import main

if __name__ == "__main__":
    raise SystemExit(main(short=True))
