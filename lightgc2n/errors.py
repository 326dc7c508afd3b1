"""The exceptions of this package. A message names the place, what was expected, what is there, and what to do.

That advice often names an option, which the command line and Python spell differently. A message holds both spellings:

    raise OutputError(f"{path} exists already. Choose another {OUT}, or replace it with {FORCE}.")

`str(problem)` has the Python spelling (`out=`, `force=True`), `problem.command_line` the other (`--out`, `--force`).
"""

import errno
import re

# Private-use characters around and between the two spellings of an option.
_START, _BETWEEN, _END = "\ue000", "\ue001", "\ue002"
_OPTION = re.compile(f"{_START}([^{_START}{_END}]*){_BETWEEN}([^{_START}{_END}]*){_END}")


def option(command_line: str, python: str) -> str:
    """Return both spellings of an option, for the message of an error."""
    return f"{_START}{command_line}{_BETWEEN}{python}{_END}"


OUT, FORCE = option("--out", "out="), option("--force", "force=True")
DATA, HISTORY = option("--data", "data="), option("--history", "history=")

# Packages of the optional extras, which are imported where they are used.
EXTRA_OF_PACKAGE = (
    {"matplotlib": "report", "onnx": "export", "psycopg": "store", "psycopg_pool": "store", "ray": "cluster"}
    | dict.fromkeys(("torch", "jaxtyping", "polars", "zstandard", "narwhals"), "train")
    | dict.fromkeys(("onnxruntime", "fastapi", "uvicorn", "prometheus_client"), "serve")
)


class LightGC2NError(Exception):
    """An error that the caller can correct. The command line shows it without a traceback.

    Attributes:
        command_line: the message with options as the command line spells them.
        service: the message with options as the fields of an HTTP request.
    """

    exit_code = 2
    status = 400  # status of the HTTP response

    def __init__(self, message: str = "") -> None:
        super().__init__(_OPTION.sub(r"\2", message))
        self.command_line = _OPTION.sub(r"\1", message)
        self.service = _OPTION.sub(lambda match: match[2].removesuffix("="), message)


class DataError(LightGC2NError):
    """A log, a prepared dataset, a run or a bundle is invalid, damaged or does not fit."""


class SettingError(LightGC2NError):
    """A setting has an unknown name or a value out of its bounds."""


class OutputError(LightGC2NError):
    """A result cannot be written to the given path."""


class MissingExtraError(LightGC2NError):
    """A package of an optional extra is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed. Install it with: pip install 'lightgc2n[{extra}]'")


class ScoreError(LightGC2NError):
    """A model gave a score that cannot be ranked."""

    status = 500


class TrainingError(LightGC2NError):
    """A run of a plan failed; the other runs are kept."""

    exit_code = 1
    status = 500


class ClusterError(LightGC2NError):
    """A Ray cluster cannot be reached, or cannot do the work."""

    status = 503


PATH_ERRORS = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP)
LONGEST_SHOWN = 200


def path_error(problem: BaseException) -> LightGC2NError | None:
    """Return our error for a path that no file can have, or None for any other problem."""
    if isinstance(problem, ValueError) and "embedded null" in str(problem):
        return SettingError("a path holds the character NUL, which no file name can have. Choose another name.")
    if isinstance(problem, OSError) and problem.errno in PATH_ERRORS:
        name = str(problem.filename or "a path")
        shown = name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}… ({len(name):,} characters)"
        return OutputError(f"{shown}: {problem.strerror}. Choose another name.")
    return None
