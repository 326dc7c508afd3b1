"""The `lightgc2n` command: all sub-commands, help that names what each option takes, errors without tracebacks."""

import inspect
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from lightgc2n import __version__
from lightgc2n.cli import COMMANDS, GROUPS
from lightgc2n.cli.printing import print_in_any_encoding
from lightgc2n.errors import EXTRA_OF_PACKAGE, LightGC2NError, MissingExtraError, path_error
from lightgc2n.progress import say

VALUE_NAMES = {"delimiter": "SIGN", "time_unit": "UNIT", "models": "NAMES", "methods": "NAMES", "host": "ADDRESS"}
VALUE_NAMES |= {"seconds": "SECONDS", "store": "STORE"}
VALUE_NAMES_OF_TYPES = {"int": "N", "float": "NUMBER"}


def _with_value_names(parameters: list[Any]) -> list[Any]:
    """Name the value of each option for the help: `--seed N`, and nothing beside a flag."""
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: ""  # its own name says what it is
        elif getattr(parameter, "is_flag", False):
            parameter.metavar = parameter.metavar or ""
        elif parameter.metavar is None and (kind := _type_name(parameter)) != "choice":
            parameter.metavar = _value_name(parameter, kind)
    return parameters


def _type_name(parameter: Any) -> str:
    """Return `choice`, `int`, `float` or another name of a type, in every supported version of Typer."""
    if (descriptor := getattr(parameter, "type_descriptor", None)) is not None:
        return "choice" if descriptor.is_choice else getattr(descriptor.annotation, "__name__", "")
    name = str(parameter.type.name).removesuffix(" range")  # of Click, which Typer builds on before 0.28
    return {"integer": "int"}.get(name, name)


def _value_name(parameter: Any, type_name: str) -> str:
    if parameter.name.endswith("_column"):
        return "COLUMN"
    return VALUE_NAMES.get(parameter.name, VALUE_NAMES_OF_TYPES.get(type_name, "NAME"))


class PlainCommand(TyperCommand):
    """A command whose help shows `--force`, not `--force <bool>`, and `--seed N`, not `--seed <int>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_value_names(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A command group with the help of `PlainCommand`."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_value_names(super().get_params(ctx))


app = typer.Typer(
    help="Recommendations for accounts that several people share.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=PlainGroup,
)


def _help_of(command: Callable[..., None]) -> str:
    """The docstring with each paragraph on one line, so that the terminal alone breaks lines."""
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(command) or "").split("\n\n"))


for group, names in GROUPS.items():
    for name in names:
        app.command(name, cls=PlainCommand, rich_help_panel=group, help=_help_of(COMMANDS[name]))(COMMANDS[name])
RESUMABLE = ("train", "tune", "compare", "experiment")


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
    """The command received a stop signal. Not a KeyboardInterrupt, which typer handles without a message."""


def main() -> None:
    """Run the command line. A user error is reported in one sentence, with exit code 2."""
    # Threads that spin while they wait slow down other processes on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    print_in_any_encoding()
    # Ctrl-C and SIGTERM clean up alike, so that no temporary file is left behind.
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    try:
        app()
    except LightGC2NError as problem:
        _fail(problem.command_line, problem.exit_code)
    except ModuleNotFoundError as problem:
        package = (problem.name or "").partition(".")[0]
        if package not in EXTRA_OF_PACKAGE:
            raise
        missing = MissingExtraError(package, EXTRA_OF_PACKAGE[package])
        _fail(str(missing), missing.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader closed the pipe (as in `| head`)
        sys.exit(141)
    except (OSError, ValueError) as problem:
        if explained := path_error(problem):
            _fail(explained.command_line, explained.exit_code)
        if not isinstance(problem, OSError) or (problem.filename is None and problem.strerror is None):
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
        resumes = sys.argv[1] in RESUMABLE and any(word.startswith("--out") for word in sys.argv)
        resumes = resumes or sys.argv[1] == "pipeline"
        again = "to resume" if resumes else "to start again"
        _fail(f"stopped; no half-written file was left behind. Rerun the command {again}.", 130)


def _fail(message: str, exit_code: int) -> NoReturn:
    say(f"error: {message}")
    sys.exit(exit_code)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    # A second signal, as from the process of a plan, must not interrupt the clean-up.
    # Not SIG_IGN: Python warns when both signals arrive at once.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    raise _StoppedError
