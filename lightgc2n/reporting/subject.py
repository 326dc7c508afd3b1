"""Whom a report is about: the paper's model, and beside it the models of ours."""

MODEL = "lightgc2n"  # its name in the zoo
CALLED = "LightGC²N"  # its name for people
OURS = "lightgc2n-plus"  # in the zoo; names of its variants begin so


def is_model(name: str) -> bool:
    """Whether a row or series is the paper's model itself, not a variant of it."""
    return name.partition(" (")[0] in (MODEL, CALLED)


def is_ours(name: str) -> bool:
    """Whether a row or series is a model of ours, or a variant of one."""
    return name == "ours" or name.startswith(OURS)
