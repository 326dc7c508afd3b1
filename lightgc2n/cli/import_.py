"""`lightgc2n import`: read a log into a prepared dataset."""

from pathlib import Path
from typing import Annotated

import typer

from lightgc2n.cli.options import Force, Json, Seed
from lightgc2n.cli.printing import print_manifest


def import_log(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A log file, or a folder that holds one.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for the prepared dataset.")],
    format: Annotated[
        str,
        typer.Option(
            help="auto, csv, tsv, jsonl, parquet, movietweetings, recbole (event tables), logs, windows, sessions "
            "(one sequence per line). CSV, TSV and JSON lines may be compressed (.gz, .zst)."
        ),
    ] = "auto",
    name: Annotated[str, typer.Option(help="Name of the dataset; by default the name of the file.")] = "",
    account_column: Annotated[str, typer.Option(help="The column of account ids.")] = "",
    item_column: Annotated[str, typer.Option(help="The column of item ids.")] = "",
    time_column: Annotated[str, typer.Option(help="The column of times.")] = "",
    domain_column: Annotated[str, typer.Option(help="The column of the item's domain.")] = "",
    member_column: Annotated[
        str, typer.Option(help="The column of the member who acted: for evaluation only, never a model input.")
    ] = "",
    title_column: Annotated[str, typer.Option(help="The column of item titles.")] = "",
    items: Annotated[
        Path | None,
        typer.Option(
            "--items",
            metavar="FILE",
            help="A table with one item per row: id, title, categories, year, image. CSV, TSV, Parquet or movies.dat.",
        ),
    ] = None,
    columns: Annotated[
        str, typer.Option(metavar="NAME,NAME,...", help="Column names, for a table without a header.")
    ] = "",
    time_unit: Annotated[
        str, typer.Option(help="auto, s, ms, us, ns or iso; auto infers it from the size of the numbers.")
    ] = "auto",
    delimiter: Annotated[
        str, typer.Option(help="Field separator of a CSV file; by default detected from its header.")
    ] = "",
    ties: Annotated[
        str, typer.Option(help="Order of an account's events with equal times: file (as read) or random.")
    ] = "file",
    seed: Seed = 0,
    drop_duplicates: Annotated[
        bool, typer.Option("--drop-duplicates", help="Drop rows that repeat the account, item and time of another.")
    ] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip bad rows and list them in rejected.tsv instead of stopping.")
    ] = False,
    tombstones: Annotated[
        list[Path] | None,
        typer.Option("--tombstones", metavar="FILE", help="Exclude the accounts that forget wrote to this file."),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Read a log into a prepared dataset."""
    from lightgc2n.data.importing import ImportOptions
    from lightgc2n.data.importing import import_log as read

    roles = {"account": account_column, "item": item_column, "time": time_column}
    roles |= {"domain": domain_column, "member": member_column, "title": title_column}
    options = ImportOptions(
        format=format,
        name=name,
        columns={role: column for role, column in roles.items() if column},
        header=tuple(columns.split(",")) if columns else (),
        delimiter=delimiter,
        time_unit=time_unit,
        ties=ties,
        seed=seed,
        drop_duplicates=drop_duplicates,
        skip_bad=skip_bad,
    )
    print_manifest(read(source, out, options, force, tombstones or [], items), out, json)
