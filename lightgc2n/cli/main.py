"""The `lightgc2n` command: every sub-command in the order of the story, and errors without tracebacks."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import typer

from lightgc2n import __version__
from lightgc2n.cli import COMMANDS
from lightgc2n.errors import LightGC2NError, MissingExtraError
from lightgc2n.progress import say

# Packages of the optional extras that commands import where they use them.
EXTRA_OF_PACKAGE = (
    {"matplotlib": "report", "onnx": "export"}
    | dict.fromkeys(("torch", "jaxtyping", "polars", "zstandard"), "train")
    | dict.fromkeys(("onnxruntime", "fastapi", "uvicorn", "prometheus_client"), "serve")
)

app = typer.Typer(
    help="Recommendations for accounts that several people share, measured honestly.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for name, command in COMMANDS.items():
    app.command(name)(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lightgc2n {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    pass


class _StoppedError(BaseException):
    """The command was asked to stop. Not a KeyboardInterrupt, which typer ends without a word."""


def main() -> None:
    """Runs the command line; an error a person can mend ends it with one sentence and exit code 2."""
    # Threads that wait by spinning take the cores from others on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Ctrl-C and a polite kill clean up alike, so that no temporary file stays behind.
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    try:
        app()
    except LightGC2NError as problem:
        _fail(str(problem), problem.exit_code)
    except ModuleNotFoundError as problem:
        package = (problem.name or "").partition(".")[0]
        if package not in EXTRA_OF_PACKAGE:
            raise
        missing = MissingExtraError(package, EXTRA_OF_PACKAGE[package])
        _fail(str(missing), missing.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away (as in `| head`): nothing is left to say
        sys.exit(141)
    except OSError as problem:
        if problem.filename is None and problem.strerror is None:
            raise
        _fail(f"{problem.filename or 'system'}: {problem.strerror}.", 2)
    except MemoryError as problem:
        _fail(f"not enough memory: {problem}.", 2)
    except RuntimeError as problem:
        first = str(problem).partition("\n")[0].rstrip(".")
        if "allocate memory" not in first and "out of memory" not in first:
            raise
        _fail(f"not enough memory: {first}. Choose smaller settings, such as the width or the batch.", 2)
    except _StoppedError:
        _fail(
            "stopped; nothing half-written was left behind. The same command starts again, or goes on training.",
            130,
        )


def _fail(message: str, exit_code: int) -> NoReturn:
    say(f"error: {message}")
    sys.exit(exit_code)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    # Asked once is enough: a second signal, as from a plan's own process, must not break the cleaning up.
    # Not SIG_IGN, which Python complains of when both signals came at once.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    raise _StoppedError
