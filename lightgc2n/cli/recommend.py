"""`lightgc2n recommend`: list next items from a run or a bundle."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.markup import escape
from rich.table import Table

from lightgc2n.cli.on_cluster import write_on_cluster
from lightgc2n.cli.options import (
    ClusterAddress,
    Force,
    History,
    Json,
    RunData,
    Threads,
    Times,
    known_history,
    split_ids,
)
from lightgc2n.cli.printing import print_json, print_table, title_of, with_title
from lightgc2n.devices import DEVICE_HELP
from lightgc2n.errors import SettingError
from lightgc2n.progress import say

if TYPE_CHECKING:
    from lightgc2n.recommending.recommender import Recommender
    from lightgc2n.recommending.results import Ownership, Recommendations

Result = TypeVar("Result")
NEWEST = 20  # events of an account that the screen shows
NOT_PEOPLE = (
    "Users are latent: the model assumes equally many behind every account. They are not yet identified people."
)


def recommend(
    run: Annotated[
        Path, typer.Argument(metavar="RUN|BUNDLE", help="A run (made by train) or a bundle (made by export).")
    ],
    account: Annotated[
        list[str] | None, typer.Option("--account", metavar="ID", help="An account; may be repeated.")
    ] = None,
    all_accounts: Annotated[bool, typer.Option("--all", help="All accounts of the run's dataset.")] = False,
    history: History = None,
    times: Times = None,
    person: Annotated[
        str | None, typer.Option("--person", metavar="A|B|...", help="List items for this person of the account only.")
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="List items for all people of the account together.")
    ] = False,
    k: Annotated[int, typer.Option("-k", help="Length of a list.")] = 20,
    exclude_seen: Annotated[bool, typer.Option("--exclude-seen", help="Exclude items of the history.")] = False,
    allow: Annotated[
        Path | None, typer.Option("--allow", metavar="FILE", help="List only the items in this file, one id per line.")
    ] = None,
    deny: Annotated[
        Path | None, typer.Option("--deny", metavar="FILE", help="Exclude the items in this file, one id per line.")
    ] = None,
    domain: Annotated[str | None, typer.Option(help="List only items of this domain.")] = None,
    people: Annotated[bool, typer.Option("--people", help="Also show each latent user's share of each event.")] = False,
    data: RunData = None,
    cluster: ClusterAddress = None,
    threads: Threads = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="File to write: .csv, .jsonl or .parquet; with --cluster a folder."),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Recommend next items for accounts, or for a history alone."""
    _refuse_ambiguous(account or [], all_accounts, history, to_screen=out is None and not json)
    if all_accounts and (person or together):
        raise SettingError("--person and --together need --account or --history: omit --all.")
    if times is not None and (history is None or not (person or together)):
        raise SettingError("--times needs --history, and --person or --together.")
    if people and out is not None:
        raise SettingError("--people is printed on the screen or with --json; files contain only lists: omit --out.")
    from lightgc2n.recommending.loading import load
    from lightgc2n.recommending.write_recommendations import refuse_output, write_list_blocks, write_recommendations

    def list_arguments(recommender: "Recommender") -> dict[str, Any]:
        return {
            "k": k,
            "exclude_seen": exclude_seen,
            "allow": recommender.read_items(allow) if allow else None,
            "deny": recommender.read_items(deny) if deny else None,
            "domain": domain,
        }

    accounts_of_note: dict[str, list[str]] = {}
    if cluster is not None:
        if not all_accounts:
            raise SettingError("--cluster is for the lists of all accounts: give --all.")
        parts = write_on_cluster(cluster, threads, device, (run, data), out, list_arguments, force)
        for note, names in ((note, names) for part in parts for note, names in part.notes.items()):
            accounts_of_note.setdefault(note, []).extend(names)
        typer.echo(f"written to {out}", err=json)
        _say_notes(accounts_of_note)
        return
    if threads is not None:
        raise SettingError("--threads needs --cluster.")
    if out is not None:
        refuse_output(out, force)
    recommender = load(run, data, device)
    options = list_arguments(recommender)
    items = known_history(history, recommender.dataset.item_index)
    of_whole_accounts = items is None and not (person or together)
    if of_whole_accounts and out is not None:
        blocks = recommender.list_blocks(None if all_accounts else account, **options)
        noted_blocks = _collect_notes(blocks, lambda block: block.notes, accounts_of_note)
        write_list_blocks(out, noted_blocks, recommender.dataset.items, force)
    else:
        if of_whole_accounts:
            lists = recommender.recommend_many(None if all_accounts else account, **options)
        else:
            options |= {"times": split_ids(times), "person": person, "together": together}
            lists = (recommender.recommend(name, items, **options) for name in account or (None,))
        noted = _collect_notes(lists, _notes_of_list, accounts_of_note)
        if out is not None:
            write_recommendations(out, noted, force)
        else:
            printed = list(noted)
            owned = [recommender.ownership(one.account_id, items) for one in printed] if people else []
            (_print_json if json else _print_tables)(printed, owned, recommender.titles)
    if out is not None:
        typer.echo(f"written to {out}", err=json)
    _say_notes(accounts_of_note)


def _say_notes(accounts_of_note: Mapping[str, list[str]]) -> None:
    for note, names in accounts_of_note.items():
        say(f"{names[0] if len(names) == 1 else f'{len(names):,} accounts'}: {note}")


def _refuse_ambiguous(account: list[str], all_accounts: bool, history: str | None, *, to_screen: bool) -> None:
    if all_accounts and (account or history is not None):
        raise SettingError("--all lists every account with its own history: omit --account and --history.")
    if not (all_accounts or account or history is not None):
        raise SettingError("no account and no history. Give --account ID, --all or --history ID,ID,...")
    if history is not None and len(account) > 1:
        raise SettingError("--history replaces the history of one account: give --account once.")
    if all_accounts and to_screen:
        raise SettingError("--all makes long lists: give --out FILE (.csv, .jsonl or .parquet), or --json.")


def _collect_notes(
    results: Iterable[Result],
    notes_of: Callable[[Result], Iterable[tuple[str, str]]],
    accounts_of_note: dict[str, list[str]],
) -> Iterator[Result]:
    """Yield the results; collect their notes, each with the accounts that it is about."""
    for one in results:
        for account, note in notes_of(one):
            accounts_of_note.setdefault(note, []).append(account)
        yield one


def _notes_of_list(one: "Recommendations") -> Iterator[tuple[str, str]]:
    return ((one.account_id or "new account", note) for note in one.notes)


def _print_json(lists: "list[Recommendations]", owned: "list[Ownership]", titles: Mapping[str, str]) -> None:
    answers = [_as_json(one, titles) for one in lists]
    for answer, whose in zip(answers, owned, strict=False):
        events = [event._asdict() for event in whose]
        answer["latent_users"] = {"weights": whose.weights, "events": events, "note": NOT_PEOPLE}
    print_json(answers)


def _as_json(one: "Recommendations", titles: Mapping[str, str]) -> dict[str, Any]:
    items = [item._asdict() | title_of(item.item_id, titles) for item in one]
    return {"account_id": one.account_id, "fallback": one.fallback, "notes": list(one.notes), "items": items}


def _print_tables(lists: "list[Recommendations]", owned: "list[Ownership]", titles: Mapping[str, str]) -> None:
    print_table(_table(lists, titles))
    for whose in owned:
        print_table(_people_table(whose, titles))
    if owned:
        typer.echo(NOT_PEOPLE)


def _table(lists: "Iterable[Recommendations]", titles: Mapping[str, str]) -> Table:
    table = Table()
    for heading in ("account", "rank", *(["title"] if titles else []), "item", "score"):
        table.add_column(heading, justify="right" if heading in ("rank", "score") else "left")
    for one in lists:
        for item_id, score, rank in one:
            title = [escape(titles.get(item_id, "-"))] if titles else []
            table.add_row(escape(one.account_id or "-"), str(rank), *title, escape(item_id), f"{score:.4f}")
        table.add_section()
    return table


def _people_table(whose: "Ownership", titles: Mapping[str, str]) -> Table:
    newest, total = whose[-NEWEST:], len(whose)
    which = f"{total:,} events" if total <= NEWEST else f"the newest {NEWEST} of {total:,} events"
    table = Table(title=f"{escape(whose.account_id or 'new account')}: latent users of {which}", title_justify="left")
    table.add_column("item")
    for number in range(1, len(whose.weights) + 1):
        table.add_column(f"user {number}", justify="right")
    for item_id, shares in newest:
        table.add_row(escape(with_title(item_id, titles)), *_percentages(shares))
    table.add_section()
    table.add_row("weight in the account", *_percentages(whose.weights))
    return table


def _percentages(shares: tuple[float, ...]) -> Iterator[str]:
    """Shares as text, the largest in bold."""
    for share in shares:
        text = f"{100 * share:.0f} %"
        yield f"[bold]{text}[/bold]" if share == max(shares) else text
