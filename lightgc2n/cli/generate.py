"""`lightgc2n generate`: generate a log of households from a seed."""

import os
from pathlib import Path
from typing import Annotated

import typer

from lightgc2n.cli.options import ConfigFile, Force, Json, Overrides, Seed
from lightgc2n.cli.printing import print_json
from lightgc2n.config import read_settings, read_tables
from lightgc2n.errors import SettingError
from lightgc2n.files.atomic_writes import refuse_existing
from lightgc2n.synthetic.household_titles import write_titles
from lightgc2n.synthetic.households import HouseholdConfig
from lightgc2n.synthetic.households import generate as make

TABLE = "households"


def generate(
    out: Annotated[
        Path, typer.Option("--out", metavar="PATH", help="A .csv or .csv.gz file; any other name: a prepared dataset.")
    ],
    titles: Annotated[
        Path | None,
        typer.Option(
            "--titles", metavar="FILE", help="File for the titles and genres of the items, for import --items."
        ),
    ] = None,
    accounts: Annotated[int | None, typer.Option(help="Number of households, 50 to 1,000,000.")] = None,
    config: ConfigFile = None,
    set: Overrides = None,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Generate a log of households with known members from a seed.

    Settings are in the table `households`, for example --set households.weeks=8; docs/households.md lists them.
    """
    values = read_tables(config, set, known=[TABLE])[TABLE]
    if accounts is not None:
        values["accounts"] = accounts
    settings = read_settings(HouseholdConfig, values, where=TABLE)
    if titles is not None:
        refuse_existing(titles, force, "--titles")
        if os.path.realpath(titles) == os.path.realpath(out):
            raise SettingError(f"--titles {titles}: the same file as --out. Choose another name for one of them.")
    made = make(settings, seed, out, force, titles=True)
    if titles is not None:
        write_titles(settings, seed, titles, force)
    if json:
        print_json({"out": str(out)} | {key: made[key] for key in ("name", "options", "notes", "counts")})
        return
    counts = made["counts"]
    typer.echo(f"{counts['accounts']:,} households, {counts['events']:,} events, {counts['items']:,} items")
    typer.echo(f"written to {out}")
