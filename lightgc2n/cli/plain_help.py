"""Help texts that show no type beside a flag."""

from typing import Any

from typer.core import TyperCommand, TyperGroup


def _without_flag_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class PlainCommand(TyperCommand):
    """A command whose help shows `--force`, not `--force <bool>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """The same for the command that holds the others."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))
