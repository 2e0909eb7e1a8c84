"""No data at all: arrays that are only so long, for simulations of many ranks.

Arrays of one length are one object, so nothing can be checked but that messages meet and have their receive's length:
an algorithm is proven on `Symbols` first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar


class Length:
    """So many elements of `kind`, anywhere."""

    __array_interface__: ClassVar = {"data": (0,)}  # where `memory.access` looks for the address
    __slots__ = ("count", "kind", "nbytes")

    def __init__(self, kind: Nothing, count: int) -> None:
        self.kind, self.count, self.nbytes = kind, count, count * kind.itemsize

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, part: slice) -> Length:
        start, stop, _ = part.indices(self.count)
        return self.kind.array(max(stop - start, 0))


class Nothing:
    """Elements of `itemsize` bytes that hold nothing; `array(count)` are so many."""

    array: Callable[[int], Length]

    def __init__(self, itemsize: int) -> None:
        self.itemsize = itemsize
        self.array = functools.cache(functools.partial(Length, self))

    def scratch(self, like: Any, count: int) -> Any:
        return self.array(count)

    def copy(self, out: Any, array: Any) -> None: ...

    def reduce(self, out: Any, a: Any, b: Any) -> None: ...

    def finish(self, out: Any) -> None: ...
