"""Options that mean the same in every command."""

from pathlib import Path
from typing import Annotated

import typer

DatasetFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A prepared dataset (made by import or generate).")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Everything random follows from this number.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what stands at --out.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="TABLE.NAME=VALUE", help="Change one setting; may be repeated.")
]
