"""`lightgc2n describe`: the statistics of a dataset as tables, as JSON and as plots."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lightgc2n.cli.options import DatasetFolder, Json
from lightgc2n.cli.printing import print_json, print_table
from lightgc2n.data.dataset import load_dataset, verify_dataset
from lightgc2n.data.members import load_members
from lightgc2n.data.statistics import statistics
from lightgc2n.files.atomic_writes import refuse_existing

Rows = tuple[tuple[str, str, Callable[[Any], str]], ...]  # label, path in the statistics, formatter


def describe(
    folder: DatasetFolder,
    plots: Annotated[
        Path | None, typer.Option("--plots", metavar="FOLDER", help="Write plots (PNG) and statistics.json there.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the folder at --plots.")] = False,
    as_json: Json = False,
) -> None:
    """Show statistics of a dataset: accounts, sequences, events, items, repeats, popularity, times, members."""
    if plots is not None:
        refuse_existing(plots, force, option="--plots")  # before the statistics, which may take a while
    dataset = load_dataset(folder)
    verify_dataset(folder)
    numbers = statistics(dataset, load_members(folder))
    if plots is not None:
        from lightgc2n.data.dataset_plots import write_plots

        write_plots(dataset, numbers, plots, force)
    if as_json:
        print_json(numbers)
    else:
        _print(numbers)


def _whole(number: float) -> str:
    return f"{number:,.0f}"


def _decimal(number: float) -> str:
    return f"{number:,.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _small_percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"


ROWS: Rows = (
    ("items in the catalogue", "items_in_catalogue", _whole),
    ("items that occur", "items_that_occur", _whole),
    ("events", "events", _whole),
    ("accounts with events", "accounts_with_events", _whole),
    ("accounts with one event", "accounts_with_one_event", _whole),
    ("sequences", "sequences", _whole),
    ("training sequences", "train_sequences", _whole),
    ("test sequences", "test_sequences", _whole),
    ("sequence length, mean", "length.mean", _decimal),
    ("sequence length, median", "length.median", _whole),
    ("sequence length, 90th percentile", "length.p90", _whole),
    ("sequence length, longest", "length.max", _whole),
    ("density (account-item pairs seen, of all)", "density", _small_percent),
    ("repeats (item seen earlier in the sequence)", "repeat_rate", _percent),
    ("immediate repeats (same item twice running)", "immediate_repeat_rate", _percent),
    ("repeats at the last event", "repeat_rate_at_last", _percent),
    ("item popularity, Gini", "popularity_gini", _decimal),
    ("events on the top 1 % of items", "top_1_percent_share", _percent),
    ("events on the top 10 % of items", "top_10_percent_share", _percent),
    ("first event", "time.first", str),
    ("last event", "time.last", str),
    ("time between neighbours, median", "time.median_gap_seconds", _duration),
    ("neighbours with equal times", "time.equal_stamp_rate", _percent),
    ("sessions (cut where 1 h passes)", "time.sessions", _whole),
    ("events per session", "time.events_per_session", _decimal),
)
RUN_ROWS: Rows = (
    ("runs of one domain", "runs", _whole),
    ("run length, mean", "mean", _decimal),
    ("run length, median", "median", _whole),
    ("run length, 90th percentile", "p90", _whole),
    ("run length, longest", "max", _whole),
)
SWITCH_ROWS: Rows = (("domain switches between neighbours", "switch_rate", _percent),)
MEMBER_ROWS: Rows = (
    ("members", "members", _whole),
    ("events with a known member", "events_with_known_member", _whole),
    ("members per account, mean", "members_per_account.mean", _decimal),
    ("member switches between neighbours", "switch_rate", _percent),
    ("member switches if order were random", "switch_rate_in_random_order", _percent),
    ("switches relative to random order", "switches_relative_to_random", _decimal),
)


def _print(numbers: dict[str, Any]) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    accounts = f"{numbers['accounts_in_vocabulary']:,} accounts in the vocabulary"
    console.print(f"{numbers['name']} ({numbers['kind']}, {accounts}, checksum {numbers['checksum'][:12]})")
    _print_table(console, _columns(numbers), ROWS)
    if numbers["switches"]:
        _print_table(console, list(numbers["switches"]["run_length"].items()), RUN_ROWS)
        _print_table(console, [("", numbers["switches"])], SWITCH_ROWS)
    members = numbers["members"]
    if members:
        sizes = members["accounts_by_members"]
        by_size = tuple((f"accounts of household size {size}", f"accounts_by_members.{size}", _whole) for size in sizes)
        _print_table(console, [("", members)], MEMBER_ROWS + by_size)
    console.print("" if members else "\nThe dataset has no member labels.")
    for sentence in (*numbers["counting"], *numbers["notes"]):
        console.print(f"Note: {sentence}")


def _columns(numbers: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    columns = list(numbers["domains"].items())
    if len(columns) > 1:
        columns.append(("all", numbers["all"]))
    if numbers["input"]:
        columns.append(("input", numbers["input"]))
    return columns


def _print_table(console: Console, columns: list[tuple[str, dict[str, Any]]], rows: Rows) -> None:
    """Print a line for each row that has a value in any column."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(name for name, _ in columns))
    table.add_column("", no_wrap=True)
    for name, _ in columns:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for label, path, cell in rows:
        values = [_at(column, path) for _, column in columns]
        if any(value is not None for value in values):
            table.add_row(Text(label), *(Text("-" if value is None else cell(value)) for value in values))
    console.print()
    print_table(table)


def _at(numbers: dict[str, Any] | None, path: str) -> Any:
    for name in path.split("."):
        numbers = numbers.get(name) if numbers is not None else None
    return numbers
