"""`lightgc2n import`: read a log into a prepared dataset."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lightgc2n.cli.options import Force, Json, Seed
from lightgc2n.cli.printing import print_json, print_manifest, print_results
from lightgc2n.errors import SettingError

if TYPE_CHECKING:
    from lightgc2n.data.import_preview import Preview


def import_log(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A log file, a folder that holds one, or postgresql://USER@HOST/DATABASE with --query.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The folder for the prepared dataset.")
    ] = None,
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
    context_column: Annotated[
        str,
        typer.Option(help="A column to keep for each event, such as the device; a hint for who is watching, no input."),
    ] = "",
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
    time_format: Annotated[
        str,
        typer.Option(metavar="FORMAT", help="How dates are written, such as '%d.%m.%Y %H:%M' for 31.12.2023 20:15."),
    ] = "",
    delimiter: Annotated[
        str, typer.Option(help="Field separator of a CSV file; by default detected from its first lines.")
    ] = "",
    encoding: Annotated[
        str, typer.Option(metavar="NAME", help="Encoding of a text table, such as latin-1 or cp1252; by default UTF-8.")
    ] = "",
    where: Annotated[
        str,
        typer.Option(
            metavar="COMPARISON", help="Keep only rows that pass one comparison: 'rating >= 4', 'event = watch'."
        ),
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
    query: Annotated[
        str, typer.Option(metavar="SELECT", help="The rows to read from a PostgreSQL database, such as one table's.")
    ] = "",
    tombstones: Annotated[
        list[Path] | None,
        typer.Option("--tombstones", metavar="FILE", help="Exclude the accounts that forget wrote to this file."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show how the log would be read and what would be skipped; write nothing."),
    ] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Read a log into a prepared dataset."""
    from lightgc2n.data.import_preview import preview_import
    from lightgc2n.data.importing import ImportOptions
    from lightgc2n.data.importing import import_log as read

    roles = {"account": account_column, "item": item_column, "time": time_column}
    roles |= {"domain": domain_column, "member": member_column, "title": title_column}
    roles |= {"context": context_column}
    options = ImportOptions(
        format=format,
        name=name,
        columns={role: column for role, column in roles.items() if column},
        header=tuple(columns.split(",")) if columns else (),
        delimiter=delimiter,
        time_unit=time_unit,
        time_format=time_format,
        encoding=encoding,
        where=where,
        ties=ties,
        seed=seed,
        drop_duplicates=drop_duplicates,
        skip_bad=skip_bad,
    )
    if out is None and not dry_run:
        raise SettingError("--out: expected the folder for the prepared dataset. Or give --dry-run to look first.")
    with _file_of(source, query) as path:
        if dry_run or out is None:
            _show(preview_import(path, options), skip_bad, json)
        else:
            print_manifest(read(path, out, options, force, tombstones or [], items), out, json)


def _file_of(source: str, query: str) -> AbstractContextManager[Path]:
    """The file of a source; the rows of a query are written to a temporary one."""
    from lightgc2n.store.databases import is_postgres

    if is_postgres(source):
        from lightgc2n.store.postgres_table import queried_table

        return queried_table(source, query)
    if query:
        raise SettingError(f"--query: only for postgresql://USER@HOST/DATABASE, found {source}.")
    return nullcontext(Path(source))


def _show(preview: "Preview", skip_bad: bool, as_json: bool) -> None:
    """Print the first rows, the columns and what would be skipped."""
    from lightgc2n.experiments.table import Cell, Table

    if as_json:
        print_json(asdict(preview))
        return
    if preview.first:
        roles = tuple(preview.first[0])
        headings = tuple(f"{role} ({preview.columns[role]})" if role in preview.columns else role for role in roles)
        rows = tuple(tuple(Cell(row[role]) for role in roles) for row in preview.first)
        print_results(
            [
                Table(
                    "rows",
                    f"First rows as they would be read ({preview.format})",
                    headings,
                    rows,
                    text_columns=len(roles),
                )
            ]
        )
    for note in preview.notes:
        typer.echo(note)
    if preview.unused:
        typer.echo(f"columns not used: {', '.join(preview.unused)}")
    counts = preview.counts
    filtered, bad = counts.get("filtered_rows", 0), counts["rejected_rows"]
    typer.echo(f"{counts['rows']:,} rows: {counts['rows'] - filtered - bad:,} would be read", nl=False)
    are = "is" if bad == 1 else "are"
    typer.echo((f", {filtered:,} left out by --where" if filtered else "") + (f", {bad:,} {are} bad" if bad else ""))
    for line in preview.bad:
        typer.echo(f"  {line}")
    if bad and skip_bad:
        typer.echo("--skip-bad: the import would skip bad rows and list them in rejected.tsv.")
    elif bad:
        typer.echo("A bad row stops the import: correct it, or give --skip-bad, which lists bad rows in rejected.tsv.")
    left = counts["rows"] - filtered - bad
    again = " Then import" if bad and not skip_bad else " Import"
    typer.echo("Nothing was written." + (f"{again} the log with the same options and --out DIR." if left else ""))
