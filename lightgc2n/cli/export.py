"""`lightgc2n export`: write a run as a bundle for phones, browsers and the service."""

from pathlib import Path
from typing import Annotated

import typer

from lightgc2n.cli.options import Force, Json, RunData
from lightgc2n.cli.printing import print_json


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run (made by train).")],
    out: Annotated[Path, typer.Option("--out", metavar="BUNDLE", help="The folder to write.")],
    int8: Annotated[bool, typer.Option("--int8", help="Quantise item tables to 8 bits: a third of the size.")] = False,
    no_histories: Annotated[
        bool,
        typer.Option("--no-histories", help="Omit account histories: for phones, or if they are stored elsewhere."),
    ] = False,
    no_people: Annotated[
        bool, typer.Option("--no-people", help="Omit the model that finds the people behind a history.")
    ] = False,
    titles: Annotated[
        Path | None,
        typer.Option(
            "--titles",
            metavar="FILE",
            help="Item titles in place of the dataset's: a table, or id, tab and title per line.",
        ),
    ] = None,
    data: RunData = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Export a run as a bundle, which needs no torch: for onnxruntime, browsers and the HTTP service."""
    from lightgc2n.export.write_bundle import ExportOptions, export_run
    from lightgc2n.recommending.bundle_files import part_sizes

    config = export_run(run, out, ExportOptions(int8, not no_histories, not no_people, titles), data, force)
    sizes = part_sizes(out)
    if json:
        print_json({"out": str(out), "bytes": sizes, **config})
        return
    model, people, ids, server = (f"{size / 1e6:.2f} MB" for size in sizes.values())
    typer.echo(f"model: {model}, of which {people} to find people; ids and titles: {ids}")
    typer.echo(f"server/, the histories of accounts: {server}")
    typer.echo(f"written to {out}; open its page with: lightgc2n serve {out}")
