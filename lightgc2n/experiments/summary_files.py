"""The summary files beside the runs of a plan: which of them this product wrote."""

from pathlib import Path

from lightgc2n.errors import OutputError

PAGE, TABLE = "summary.md", "summary.csv"
FIRST_LINES = {PAGE: "| run | seeds |", TABLE: "run"}  # what every version wrote


def is_summary(path: Path) -> bool:
    """Return whether a file of this name begins as a summary of ours does."""
    try:
        with path.open("rb") as file:
            start = file.readline(200).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return False
    first = FIRST_LINES[path.name]
    return start.startswith(first) if path.name == PAGE else start.split(",")[0] == first


def refuse_other_summary(folder: Path) -> None:
    """Raise an error before anything is trained when a summary would replace a file of somebody else."""
    for name in FIRST_LINES:
        path = folder / name
        if path.is_symlink() or (path.exists() and not is_summary(path)):
            raise OutputError(f"{path} is no summary of runs that this command wrote. Move it elsewhere.")
