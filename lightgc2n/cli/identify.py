"""`lightgc2n identify`: how well methods tell the people behind accounts apart, where these are known."""

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from lightgc2n.cli.options import DatasetFolder, Force, Json, Seed
from lightgc2n.cli.printing import print_json, print_table
from lightgc2n.config import read_settings
from lightgc2n.errors import DataError, SettingError
from lightgc2n.progress import say

if TYPE_CHECKING:
    from lightgc2n.data.dataset import Dataset
    from lightgc2n.data.members import Members
    from lightgc2n.experiments.people import Identified, IdentifyOptions


def identify(
    folder: DatasetFolder,
    methods: Annotated[str, typer.Option(help="all, or names: one-person,session-k-means.")] = "all",
    run: Annotated[
        list[Path] | None,
        typer.Option("--run", metavar="RUN", help="Also the latent users of a run on this data; may be repeated."),
    ] = None,
    accounts: Annotated[
        str, typer.Option(help="all, validation (three in ten, to choose settings on) or test (the others).")
    ] = "all",
    gap: Annotated[
        float, typer.Option(metavar="HOURS", help="A longer pause ends a session (0: one hour, or a day if only days).")
    ] = 0.0,
    serve: Annotated[
        str | None,
        typer.Option(
            "--serve",
            metavar="RUN|FLOOR",
            help="Instead: lists of this run (protocol time) or floor for the person who is likely acting.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where the tables go.")] = None,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Ask methods who did what, on accounts whose people are known, and say how right they are.

    Labels are read by the scorer, and by methods that say so; see docs/people.md.
    """
    from lightgc2n.data.dataset import load_dataset, verify_dataset
    from lightgc2n.data.files import refuse_existing
    from lightgc2n.data.members import load_members
    from lightgc2n.experiments.people import IdentifyOptions
    from lightgc2n.experiments.people import identify as ask
    from lightgc2n.experiments.people_tables import write_identified

    if out is not None:
        refuse_existing(out, force)
    options = read_settings(IdentifyOptions, {"accounts": accounts, "gap": gap, "seed": seed}, where="identify")
    dataset = load_dataset(folder)
    verify_dataset(folder)
    members = load_members(folder)
    if members is None:
        raise DataError(f"{folder}: nobody knows who acted there. Make such data with lightgc2n simulate or generate.")
    if serve is not None:
        if methods != "all" or run or seed:
            raise SettingError("--serve: leave --methods, --run and --seed out; it asks for lists alone.")
        _serve(serve, dataset, members, options, out, json)
        return
    found = ask(dataset, members, methods.split(","), options, run or [])
    missing = write_identified(found, out, force) if out is not None else ""
    if missing:
        say(missing)
    if json:
        print_json(found.result)
        return
    _show(found)
    if out is not None:
        typer.echo(f"written to {out}")


def _serve(
    name: str, dataset: "Dataset", members: "Members", options: "IdentifyOptions", out: Path | None, as_json: bool
) -> None:
    from lightgc2n.data.files import new_file
    from lightgc2n.experiments.served import serve_named

    if out is not None and out.suffix != ".json":
        raise SettingError(f"{out}: with --serve, --out is one file that ends in .json.")
    result = serve_named(name, dataset, members, options)
    if out is not None:
        with new_file(out, force=True) as temporary:
            temporary.write_text(dumps(result, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print_json(result)
        return
    _show_served(result)
    if out is not None:
        typer.echo(f"written to {out}")


def _show_served(result: dict[str, Any]) -> None:
    own = result["rows"]["account"]
    measures = [measure for measure in own if "@" in measure]
    table = Table(title=f"{result['dataset']['name']}, lists of {result['model']}, in %")
    for heading in ("asked with", *measures, "weights", "p: least served, MRR"):
        table.add_column(heading, justify="left" if heading == "asked with" else "right")
    for way, row in result["rows"].items():
        cells = [_beside(row[measure], own[measure]) for measure in measures]
        weights = f"{row['weight going on']}, {row['weight beginning']}"
        table.add_row(way, *cells, weights, ", ".join(f"{p:.3f}" for p in (row["p"] or {}).values()))
    print_table(table)
    typer.echo(
        f"{result['questions']:,} events of {result['accounts']:,} accounts, {100 * result['going_on']:.0f} % of them "
        f"in a session that goes on. Weights, there and where a session begins, were chosen on validation events."
    )


def _beside(value: float | None, own: float | None) -> str:
    """A share in percent, and how far it is from the account's own."""
    if value is None or own is None:
        return "-"
    return f"{100 * value:.2f}" + (f" ({100 * (value / own - 1):+.1f} %)" if own and value != own else "")


def _show(found: "Identified") -> None:
    from lightgc2n.experiments.people_tables import HEADINGS, TITLES, cells, notes

    for name, title in TITLES.items():
        table = Table(title=f"{found.result['dataset']['name']}, {title}")
        table.add_column("method")
        for heading in HEADINGS:
            table.add_column(heading, justify="right")
        for method, row in cells(found.result, name).items():
            table.add_row(method, *row)
        if table.row_count:
            print_table(table)
    for line in notes(found.result):
        typer.echo(line)
