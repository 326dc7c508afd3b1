"""`lightgc2n audit`: what leaks from the test set into training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lightgc2n.cli.inputs import open_split
from lightgc2n.cli.options import Json, Seed
from lightgc2n.errors import SettingError

if TYPE_CHECKING:
    from lightgc2n.data.leak_audit import Audit


def audit(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A prepared dataset (made by import or generate).")
    ] = None,
    train: Annotated[
        Path | None, typer.Option("--train", metavar="FILE", help="Training windows, one a line, instead of DIR.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option("--test", metavar="FILE", help="Test windows, one a line, the target last.")
    ] = None,
    format: Annotated[str, typer.Option("--format", help="Of the two files: auto, windows or logs.")] = "auto",
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", metavar="NAME", help="last (the default), time, cold-accounts or windows."),
    ] = None,
    domain: Annotated[str | None, typer.Option("--domain", metavar="NAME", help="Audit one domain alone.")] = None,
    targets: Annotated[
        str | None, typer.Option("--targets", metavar="all|last", help="Training targets: every prefix, or the last.")
    ] = None,
    target_in_input: Annotated[
        bool, typer.Option("--target-in-input", help="Leave the target in the input, as the released code does.")
    ] = False,
    seed: Seed = 0,
    json: Json = False,
    strict: Annotated[bool, typer.Option("--strict", help="End with exit code 1 where something leaks.")] = False,
) -> None:
    """Say what leaks: test targets or windows that training already holds."""
    from lightgc2n.progress import step

    of_folder = {"--protocol": protocol, "--domain": domain, "--targets": targets, "--target-in-input": target_in_input}
    _refuse_mixture(folder, train, test, [name for name, value in of_folder.items() if value], format)
    with step("auditing"):
        if folder is None:
            from lightgc2n.data.leak_audit import audit_files

            assert train is not None
            assert test is not None
            found = audit_files(train, test, format)
        else:
            from lightgc2n.data.leak_audit import audit_split

            settings = {"protocol": protocol or "last", "targets": targets or "auto"}
            found = audit_split(*open_split(folder, domain, **settings, target_in_input=target_in_input, seed=seed))
    _print(found, json)
    if strict and found.leaks:
        raise typer.Exit(1)


def _refuse_mixture(
    folder: Path | None, train: Path | None, test: Path | None, of_folder: list[str], format: str
) -> None:
    ways = "Give a prepared dataset DIR with --protocol, or two files with --train and --test"
    if folder is None and (train is None or test is None):
        raise SettingError(f"audit: {'one file is missing' if train or test else 'nothing to audit'}. {ways}.")
    if folder is not None and (train is not None or test is not None):
        raise SettingError(f"audit: found both a dataset and files. {ways}, not both.")
    if folder is None and of_folder:
        raise SettingError(f"audit: {', '.join(of_folder)} says how to split a dataset; two files are already split.")
    if folder is not None and format != "auto":
        raise SettingError("audit: --format says how to read --train and --test; a prepared dataset needs none.")


def _print(found: "Audit", as_json: bool) -> None:
    from rich.table import Table

    from lightgc2n.cli.printing import print_json, print_table

    if as_json:
        print_json(found.to_json())
        return
    table = Table(title=f"{found.name}, protocol {found.protocol}", title_justify="left")
    table.add_column("what")
    for name in ("count", "of", "share"):
        table.add_column(name, justify="right")
    table.add_column("read as")
    for finding in found.findings:
        count = "-" if finding.count is None else f"{finding.count:,}"
        reading = "LEAK" if finding.leaks else "no leak" if finding.role == "leak" else finding.role
        reading = "-" if finding.count is None else reading
        table.add_row(finding.label, count, f"{finding.of:,}", finding.percent, reading)
    print_table(table)
    for sentence in (*found.stamps, *found.notes):
        typer.echo(f"Note: {sentence}")
    typer.echo(found.verdict)
