"""--precision: the types of what is kept and sent. Nothing is loaded here.

Mixed precision keeps weights and gradients in 16 bits, and masters of the weights and the optimizer's moments in
float32 (Micikevicius et al., ICLR 2018). All arithmetic is in float32, see `layers` and `optimizers`; all-reduces add
in 16 bits, or in float32 with --wire-dtype.
"""

TYPES = {"float32": "float32", "mixed": "bfloat16", "mixed-float16": "float16"}
HELP = "mixed: weights and gradients in bfloat16, masters and moments in float32; mixed-float16: and the loss scaled"


def check(args):
    """The options do not exclude each other.

    Raises:
        ValueError: they do.
    """
    if args.precision != "mixed-float16":
        return
    if args.sync in ("parameter-server", "none"):
        raise ValueError(
            f"--precision mixed-float16 excludes --sync {args.sync}, where ranks would not agree on whether a step is "
            f"skipped; --precision mixed skips none"
        )
    if args.check_finite:
        raise ValueError(
            "--precision mixed-float16 excludes --check-finite: it skips the steps at which that would end the run; "
            "--precision mixed skips none"
        )


def words(precision):
    """What is kept how, for the heading."""
    kept = TYPES[precision]
    return "" if kept == "float32" else f" of {kept}, their masters of float32"


def rounded(model, precision):
    """The model itself; its parameters and gradients are of this precision."""
    import ml_dtypes  # noqa: F401 with it NumPy knows bfloat16

    return model.to(lambda array: array.astype(TYPES[precision], copy=False))
