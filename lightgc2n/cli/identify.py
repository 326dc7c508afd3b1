"""`lightgc2n identify`: score methods that separate the people behind accounts, on labelled data."""

from collections.abc import Callable
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightgc2n.cli.options import DatasetFolder, Force, Json, Seed
from lightgc2n.cli.printing import print_json, print_results
from lightgc2n.config import read_settings
from lightgc2n.errors import DataError, SettingError
from lightgc2n.progress import say

if TYPE_CHECKING:
    from lightgc2n.data.dataset import Dataset
    from lightgc2n.data.members import Members
    from lightgc2n.experiments.identify import IdentifyOptions


def identify(
    folder: DatasetFolder,
    methods: Annotated[str, typer.Option(help="all, or names: one-person,session-k-means.")] = "all",
    run: Annotated[
        list[Path] | None,
        typer.Option(
            "--run", metavar="RUN", help="Also score the latent users of a run on this data; may be repeated."
        ),
    ] = None,
    accounts: Annotated[
        str, typer.Option(help="all, validation (30 %, to select settings) or test (the rest).")
    ] = "all",
    gap: Annotated[
        float,
        typer.Option(metavar="HOURS", help="A longer pause ends a session (0: one hour; one day if times are dates)."),
    ] = 0.0,
    serve: Annotated[
        str | None,
        typer.Option(
            "--serve",
            metavar="RUN|BASELINE",
            help="Instead: score the lists of this run (protocol time) or baseline for the person probably acting.",
        ),
    ] = None,
    who: Annotated[
        bool,
        typer.Option("--who", help="Instead: score how well it is known who is watching, at a time and after items."),
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The folder for the tables.")] = None,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Score methods that assign events to people, on accounts whose people are known.

    Labels are read by the scorer, and by the methods documented to use them in docs/people.md.
    """
    from lightgc2n.data.dataset import load_dataset, verify_dataset
    from lightgc2n.data.members import load_members
    from lightgc2n.experiments.identify import IdentifyOptions
    from lightgc2n.experiments.identify import identify as score
    from lightgc2n.experiments.identify_tables import notes, tables, write_identified
    from lightgc2n.files.atomic_writes import refuse_existing

    if out is not None:
        refuse_existing(out, force)
    options = read_settings(IdentifyOptions, {"accounts": accounts, "gap": gap, "seed": seed}, where="identify")
    dataset = load_dataset(folder)
    verify_dataset(folder)
    members = load_members(folder)
    if members is None:
        raise DataError(f"{folder}: has no labels of people. Make labelled data with lightgc2n simulate or generate.")
    if who:
        if methods != "all" or run or gap or serve is not None:
            raise SettingError("--who: omit --methods, --run, --gap and --serve, which have no effect on it.")
        _who(dataset, members, options, out, force, json)
        return
    if serve is not None:
        if methods != "all" or run or seed:
            raise SettingError("--serve: omit --methods, --run and --seed, which have no effect on lists.")
        _serve(serve, dataset, members, options, out, force, json)
        return
    identified = score(dataset, members, methods.split(","), options, run or [])
    warning = write_identified(identified, out, force) if out is not None else ""
    if warning:
        say(warning)
    if json:
        print_json(identified.result)
        return
    print_results(tables(identified.result), notes(identified.result))
    if out is not None:
        typer.echo(f"written to {out}")


def _serve(
    name: str,
    dataset: "Dataset",
    members: "Members",
    options: "IdentifyOptions",
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    from lightgc2n.experiments.person_lists import serve_named

    _refuse_folder(out, "--serve")
    _report(serve_named(name, dataset, members, options), _show_lists, out, force, as_json)


def _who(
    dataset: "Dataset", members: "Members", options: "IdentifyOptions", out: Path | None, force: bool, as_json: bool
) -> None:
    from lightgc2n.experiments.who_is_watching import score_who
    from lightgc2n.experiments.who_tables import notes, tables

    _refuse_folder(out, "--who")

    def show(result: dict[str, Any]) -> None:
        print_results(tables(result), notes(result))

    _report(score_who(dataset, members, options), show, out, force, as_json)


def _refuse_folder(out: Path | None, what: str) -> None:
    if out is not None and out.suffix != ".json":
        raise SettingError(f"{out}: with {what}, --out is one file that ends in .json.")


def _report(
    result: dict[str, Any], show: Callable[[dict[str, Any]], None], out: Path | None, force: bool, as_json: bool
) -> None:
    """Write the result to a file, if one is named, and print it."""
    from lightgc2n.files.atomic_writes import new_file

    if out is not None:
        with new_file(out, force) as temporary:
            temporary.write_text(dumps(result, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print_json(result)
        return
    show(result)
    if out is not None:
        typer.echo(f"written to {out}")


def _show_lists(result: dict[str, Any]) -> None:
    from lightgc2n.experiments.table import Cell, Table

    own = result["rows"]["account"]
    measures = [measure for measure in own if "@" in measure]
    rows = []
    for way, row in result["rows"].items():
        cells = [_beside(row[measure], own[measure]) for measure in measures]
        weights = f"{row['weight going on']}, {row['weight beginning']}"
        rows.append((way, *cells, weights, ", ".join(f"{p:.3f}" for p in (row["p"] or {}).values())))
    caption = f"{result['dataset']['name']}, lists of {result['model']}, in %"
    columns = ("history", *measures, "weights", "p: least served, MRR")
    note = (
        f"{result['questions']:,} events of {result['accounts']:,} accounts, {100 * result['going_on']:.0f} % of them "
        f"within a session. Weights, within a session and at its start, were selected on validation events."
    )
    control = result["rows"]["people now"]["p against control"]
    against = ", ".join(f"{name} {p:.3f}" for name, p in control.items())
    notes = [note, f"people now against shuffled people, the control: p {against}."]
    print_results([Table("lists", caption, columns, tuple(tuple(map(Cell, row)) for row in rows))], notes)


def _beside(value: float | None, own: float | None) -> str:
    """A share in percent, and its difference from the account's own."""
    if value is None or own is None:
        return "-"
    return f"{100 * value:.2f}" + (f" ({100 * (value / own - 1):+.1f} %)" if own and value != own else "")
