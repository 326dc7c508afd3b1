"""`lightgc2n audit`: report test data that leaked into training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightgc2n.cli.options import Json, Seed
from lightgc2n.errors import SettingError

if TYPE_CHECKING:
    from lightgc2n.data.dataset import Dataset
    from lightgc2n.data.leak_audit import Audit
    from lightgc2n.data.splits import Split


def audit(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A prepared dataset (made by import or generate).")
    ] = None,
    train: Annotated[
        Path | None, typer.Option("--train", metavar="FILE", help="Training windows, one per line; instead of DIR.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option("--test", metavar="FILE", help="Test windows, one per line, the target last.")
    ] = None,
    format: Annotated[str, typer.Option("--format", help="Format of the two files: auto, windows or logs.")] = "auto",
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", metavar="NAME", help="last (the default), time, cold-accounts or windows."),
    ] = None,
    domain: Annotated[str | None, typer.Option("--domain", metavar="NAME", help="Audit only this domain.")] = None,
    targets: Annotated[
        str | None, typer.Option("--targets", metavar="all|last", help="Training targets: every prefix, or the last.")
    ] = None,
    target_in_input: Annotated[
        bool, typer.Option("--target-in-input", help="Leave the target in the input, as the released code does.")
    ] = False,
    seed: Seed = 0,
    json: Json = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 if anything leaks.")] = False,
) -> None:
    """Report leaks: test targets or windows that training contains too."""
    from lightgc2n.progress import step

    split_options = {
        "--protocol": protocol,
        "--domain": domain,
        "--targets": targets,
        "--target-in-input": target_in_input,
    }
    _refuse_conflicting_inputs(folder, train, test, [name for name, value in split_options.items() if value], format)
    with step("auditing"):
        if folder is None:
            from lightgc2n.data.leak_audit import audit_files

            assert train is not None
            assert test is not None
            result = audit_files(train, test, format)
        else:
            from lightgc2n.data.leak_audit import audit_split

            settings = {"protocol": protocol or "last", "targets": targets or "auto"}
            result = audit_split(*_open_split(folder, domain, **settings, target_in_input=target_in_input, seed=seed))
    _print(result, json)
    if strict and result.leaks:
        raise typer.Exit(1)


def _refuse_conflicting_inputs(
    folder: Path | None, train: Path | None, test: Path | None, split_options: list[str], format: str
) -> None:
    ways = "Give a prepared dataset DIR with --protocol, or two files with --train and --test"
    if folder is None and (train is None or test is None):
        raise SettingError(f"audit: {'one file is missing' if train or test else 'nothing to audit'}. {ways}.")
    if folder is not None and (train is not None or test is not None):
        raise SettingError(f"audit: found both a dataset and files. {ways}, not both.")
    if folder is None and split_options:
        raise SettingError(f"audit: {', '.join(split_options)} applies to a dataset; two files are already split.")
    if folder is not None and format != "auto":
        raise SettingError("audit: --format applies to --train and --test, not to a prepared dataset.")


def _print(result: "Audit", as_json: bool) -> None:
    from rich.table import Table

    from lightgc2n.cli.printing import print_json, print_table

    if as_json:
        print_json(result.to_json())
        return
    table = Table(title=f"{result.name}, protocol {result.protocol}", title_justify="left")
    table.add_column("what")
    for name in ("count", "of", "share"):
        table.add_column(name, justify="right")
    table.add_column("read as", no_wrap=True)
    for finding in result.findings:
        count = "-" if finding.count is None else f"{finding.count:,}"
        reading = "LEAK" if finding.leaks else "no leak" if finding.role == "leak" else finding.role
        reading = "-" if finding.count is None else reading
        table.add_row(finding.label, count, f"{finding.of:,}", finding.percent, reading)
    print_table(table)
    for sentence in (*result.stamps, *result.notes):
        typer.echo(f"Note: {sentence}")
    typer.echo(result.verdict)


def _open_split(folder: Path, domain: str | None, **settings: Any) -> "tuple[Dataset, Split]":
    """The dataset, checked against its checksums, or one domain of it, and its split."""
    from lightgc2n.config import read_settings
    from lightgc2n.data.dataset import load_dataset, verify_dataset
    from lightgc2n.data.splits import SplitConfig, split_dataset

    config = read_settings(SplitConfig, settings, where="split")
    dataset = load_dataset(folder)
    verify_dataset(folder)
    if domain:
        dataset = dataset.only(domain)
    return dataset, split_dataset(dataset, config)
