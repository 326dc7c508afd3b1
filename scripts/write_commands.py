"""Writes docs/reference/commands.md from the command line itself."""

from pathlib import Path

from typer.main import get_command

from lightgc2n.cli import COMMANDS
from lightgc2n.cli.main import app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"


def commands_page() -> str:
    """The page: every command, its arguments and options with their help."""
    root = get_command(app)
    lines = ["# Commands", "", "Written by `python scripts/write_commands.py`.", ""]
    for name in COMMANDS:
        command = root.commands[name]  # type: ignore[attr-defined]
        lines += [f"## lightgc2n {name}", "", *(command.help or "").strip().splitlines(), ""]
        lines += ["| option | meaning | default |", "|---|---|---|"]
        for parameter in command.params:
            if parameter.name == "help":
                continue
            is_option = parameter.param_type_name == "option"
            names = ", ".join(f"`{one}`" for one in parameter.opts) if is_option else f"`{parameter.metavar}`"
            required = "required" if parameter.required else _default(parameter.default)
            lines.append(f"| {names} | {(parameter.help or '').replace('|', chr(92) + '|')} | {required} |")
        lines.append("")
    return "\n".join(lines)


def _default(value: object) -> str:
    return "" if value is None or value is False or value == "" or callable(value) else f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(commands_page(), encoding="utf-8")
