"""`lightgc2n people`: show how many people use an account, who did what, and a list for each person."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

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
from lightgc2n.cli.printing import can_print, print_json, print_table, title_of, with_title
from lightgc2n.errors import SettingError

if TYPE_CHECKING:
    from lightgc2n.recommending.results import AccountPeople, Activity, Person, PersonEvent, Recommendations, Watching

NEWEST = 20  # events that are shown one by one
STYLES = dict(zip("ABCDE", ("black on cyan", "black on yellow", "white on magenta", "black on green", "white on blue"),
                  strict=True))  # fmt: skip
BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
WEEKDAYS = ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WHO_NOTE = "A chance is no certainty: let the viewer choose whose list to see (recommend --person)."
Named = Callable[[str], str]


def people(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN|BUNDLE", help="A run (made by train) on logs, or a bundle (made by export)."),
    ],
    account: Annotated[str | None, typer.Option("--account", metavar="ID", help="A known account.")] = None,
    all_accounts: Annotated[
        bool, typer.Option("--all", help="Summarise all accounts: how many people share them, with examples.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="With --all: a .csv, .jsonl or .parquet with the people of each account; on a cluster a folder.",
        ),
    ] = None,
    history: History = None,
    times: Times = None,
    data: RunData = None,
    k: Annotated[int, typer.Option("-k", help="Length of a list.")] = 10,
    exclude_seen: Annotated[
        bool, typer.Option("--exclude-seen", help="Exclude items that were watched or bought before.")
    ] = False,
    titles: Annotated[
        Path | None,
        typer.Option(
            "--titles",
            metavar="FILE",
            help="Item titles in place of those known: a table, or id, tab and title per line.",
        ),
    ] = None,
    who: Annotated[
        str | None,
        typer.Option(
            "--who",
            metavar="TIME",
            help="Instead: who is probably watching at this time (ISO), after the newest event; - without times.",
        ),
    ] = None,
    begun: Annotated[
        str | None, typer.Option("--begun", metavar="ID,ID,...", help="With --who: items started in this session.")
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(metavar="VALUE", help="With --who: the device or other hint, if import kept that column."),
    ] = None,
    cluster: ClusterAddress = None,
    threads: Threads = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show how many people use an account, who did what, what each person likes, and lists for each and for all.

    With --who: the chance of each person to be watching at a time. People are named by letters. For a run, the model
    that finds them is learned from its training logs at the first call and stored in the run's folder. A bundle
    contains it unless it was exported with --no-people.
    """
    from lightgc2n.data.catalogue import read_titles
    from lightgc2n.recommending.loading import load

    if all_accounts:
        if account is not None or history is not None or who is not None:
            raise SettingError("--all summarises every account: omit --account, --history and --who.")
        _summarise(run, data, out, force, json, cluster, threads)
        return
    if cluster is not None or threads is not None:
        raise SettingError("--cluster and --threads need --all.")
    if out is not None:
        raise SettingError("--out needs --all: it gets one row for each account.")
    known = read_titles(titles) if titles is not None else {}
    recommender = load(run, data)
    shown = known_history(history, recommender.dataset.item_index)
    if who is None and (begun is not None or context is not None):
        raise SettingError("--begun, --context: only with --who TIME.")
    if who is not None:
        time, items = (None if who == "-" else who), split_ids(begun) or []
        watching = recommender.who(account, shown, split_ids(times), time=time, items=items, context=context)
        _show_who(watching, known or recommender.titles, json)
        return
    result = recommender.people(account, shown, split_ids(times), k=k, exclude_seen=exclude_seen)
    known = known or recommender.titles
    if json:
        print_json(_as_json(result, known))
    else:
        _show(result, lambda item: with_title(item, known))


def _show_who(watching: "Watching", titles: dict[str, str], as_json: bool) -> None:
    if as_json:
        steps = [step._asdict() | title_of(step.item_id or "", titles) for step in watching.steps]
        print_json(asdict(watching) | {"steps": steps, "notes": list(watching.notes)})
        return
    for note in watching.notes:
        typer.echo(f"Note: {note}.")
    when = f" at {watching.time}" if watching.time is not None else ""
    typer.echo(f"Who is probably watching{when}:")
    table = Table()
    table.add_column("after")
    for name in watching.people:
        table.add_column(_badge(name), justify="right")
    for step in watching.steps:
        begun = "nothing yet" if step.item_id is None else escape(with_title(step.item_id, titles))
        table.add_row(begun, *(f"{100 * chance:.0f} %" for chance in step.chances))
    print_table(table)
    if len(watching.people) > 1:
        typer.echo(WHO_NOTE)


def _summarise(
    run: Path, data: Path | None, out: Path | None, force: bool, json: bool, cluster: str | None, threads: int | None
) -> None:
    """Count the people of all accounts; show the summary, and write one row for each account to `out`."""
    from lightgc2n.recommending.loading import load
    from lightgc2n.recommending.people_report import (
        UNCERTAIN,
        Example,
        accounts_with_events,
        population_of,
        summarised,
        summary_of,
    )
    from lightgc2n.recommending.write_recommendations import refuse_output, write_counts

    rows: list[Example] = []
    if cluster is not None:
        parts = write_on_cluster(cluster, threads, "cpu", (run, data), out, lambda _: None, force)
        counted = [one for part in parts for one in part.counted]
        rows, population = [one.example for one in counted], summarised(counted)
    else:
        if threads is not None:
            raise SettingError("--threads needs --cluster.")
        if out is not None:
            refuse_output(out, force)
        recommender = load(run, data)
        _ = recommender.finder  # learn it, if need be, before accounts are counted
        population = population_of(
            accounts_with_events(recommender.dataset), recommender.people_of_all, None, rows.append
        )
        if out is not None:
            write_counts(out, rows, force)
    if out is not None:
        typer.echo(f"written to {out}", err=json)
    if json:
        print_json(population.as_json() | summary_of(rows))
        return
    table = Table(title=f"People of {population.accounts:,} accounts", title_justify="left")
    for heading in ("people", "accounts", "share", "a clear example"):
        table.add_column(heading, justify="left" if heading == "a clear example" else "right")
    clear = {one.count: one for one in population.examples if one.confidence >= UNCERTAIN}
    for number, count in enumerate(population.counts, start=1):
        one = clear.get(number)
        example = "-" if one is None else f"{escape(one.account)} ({one.events:,} events, {100 * one.confidence:.0f} %)"
        table.add_row(str(number), f"{count:,}", _share(count, population.accounts), example)
    print_table(table)
    if rows:
        summary = summary_of(rows)
        shared, sure = (100 * summary[name] for name in ("shared", "mean_confidence"))
        typer.echo(
            f"{shared:.0f} % are shared. On average {summary['mean_people']:.2f} people use an account; "
            f"the mean confidence is {sure:.0f} %."
        )
    typer.echo("Counts are estimates; with too little evidence for more an account counts as one person.")


def _share(count: int, of: int) -> str:
    """A share in whole percent, halves rounded up as on the page."""
    percent = 100 * count / max(of, 1)
    return "< 1 %" if 0 < percent < 0.5 else f"{math.floor(percent + 0.5)} %"


def _as_json(result: "AccountPeople", titles: dict[str, str]) -> dict[str, Any]:
    def items(rows: Sequence[Any]) -> list[dict[str, Any]]:
        return [row._asdict() | title_of(row.item_id, titles) for row in rows]

    def listed(one: "Recommendations | None") -> dict[str, Any] | None:
        return None if one is None else {"items": items(one), "fallback": one.fallback, "notes": list(one.notes)}

    persons = [
        {
            "name": person.name,
            "description": person.description,
            "events": person.events,
            "share": person.share,
            "categories": [one._asdict() for one in person.categories],
            "likes": items(person.likes),
            "active": None if person.active is None else asdict(person.active),
            "next": listed(person.next),
        }
        for person in result.people
    ]
    return {
        "account_id": result.account_id,
        "count": result.count,
        "confidence": result.confidence,
        "chances": result.chances,
        "events": items(result.events),
        "people": persons,
        "together": listed(result.together),
        "account": listed(result.whole),
        "notes": list(result.notes),
    }


def _show(result: "AccountPeople", named: Named) -> None:
    typer.echo(_count_in_words(result))
    for note in result.notes:
        if note not in result.whole.notes:  # these are printed with the count
            typer.echo(f"Note: {note}.")
    console = Console(highlight=False)
    console.print(_timeline(result.events), soft_wrap=True)
    print_table(_events_table(result.events, named))
    print_table(_people_table(result.people, named))
    print_table(_lists_table(result, named))
    if any(person.active for person in result.people):
        typer.echo("Hours and days are in the time zone of the log; in UTC if its times have an offset.")


def _count_in_words(result: "AccountPeople") -> str:
    from lightgc2n.recommending.recommender import ONE_ASSUMED

    sure, name = f"{100 * result.confidence:.0f} %", result.account_id or "the history"
    if ONE_ASSUMED in result.whole.notes:
        return f"{name}: {ONE_ASSUMED}."
    if result.count == 1:
        return f"{name}: one person (confidence {sure}). There is not enough evidence for more."
    others = ((number, chance) for number, chance in enumerate(result.chances, start=1) if number != result.count)
    rest = ", ".join(f"{number} ({100 * chance:.0f} %)" for number, chance in others)
    return f"{name}: {result.count} people (confidence {sure}). Other counts: {rest}."


def _timeline(events: "Sequence[PersonEvent]") -> Text:
    """A letter for each event, oldest first; lower case if its probability is at most 50 %."""
    line = Text("oldest ")
    for event in events:
        letter = event.person if event.probability > 0.5 else event.person.lower()
        line.append(letter, style=STYLES.get(event.person, ""))
    return line.append(" newest (lower case: probability at most 50 %)")


def _events_table(events: "Sequence[PersonEvent]", named: Named) -> Table:
    newest, total = events[-NEWEST:], len(events)
    which = f"{total:,} events" if total <= NEWEST else f"the newest {NEWEST} of {total:,} events"
    table = Table(title=f"Who acted in {which}", title_justify="left")
    timed = newest[-1].time is not None
    for heading in ("when", "who", "item")[not timed :]:
        table.add_column(heading)
    table.add_column("probability", justify="right")
    for event in newest:
        row = [_badge(event.person), escape(named(event.item_id)), f"{100 * event.probability:.0f} %"]
        table.add_row(*([event.time or ""] if timed else []), *row)
    return table


def _people_table(people: "Sequence[Person]", named: Named) -> Table:
    table = Table(title="What is typical of each person", title_justify="left", show_lines=True)
    timed = any(person.active for person in people)
    for heading in ("person", "events", "in words", "typical items") + (("active",) if timed else ()):
        table.add_column(heading, justify="right" if heading == "events" else "left", no_wrap=heading == "active")
    for person in people:
        likes = "\n".join(f"{escape(named(like.item_id))}, {like.events:,} events" for like in person.likes)
        count = f"{person.events:,} ({100 * person.share:.0f} %)"
        row = [_badge(person.name), count, escape(person.description), likes or "-"]
        table.add_row(*row, *([_when(person.active)] if person.active else []))
    return table


def _when(active: "Activity") -> Text:
    """Days of the week, and the 24 hours of a day or the months; a line of bars is never broken."""
    lines = [_named_bars(WEEKDAYS, active.weekdays)]
    if active.hours is not None:
        lines.append(f"0h{''.join(_bar(share, active.hours) for share in active.hours)}24h")
    else:
        bars = _named_bars(MONTHS, active.months)
        lines += [bars[: len(bars) // 2], bars[len(bars) // 2 :]]
    return Text("\n".join(lines), no_wrap=True)


def _named_bars(names: Sequence[str], shares: Sequence[float]) -> str:
    return "".join(f"{name}{_bar(share, shares)}" for name, share in zip(names, shares, strict=True))


def _bar(share: float, of: Sequence[float]) -> str:
    """A bar for a share, relative to the largest."""
    bars = BARS if can_print(BARS) else PLAIN_BARS
    return bars[round(share / (max(of) or 1.0) * (len(bars) - 1))]


def _lists_table(result: "AccountPeople", named: Named) -> Table:
    """A column for each person, for all of them together, and for the account."""
    columns = [(f"next for {_badge(person.name)}", person.next) for person in result.people]
    if result.together is not None:
        columns += [("together", result.together), ("the account", result.whole)]
    table = Table(title="What to show next", title_justify="left")
    table.add_column("rank", justify="right")
    for heading, _ in columns:
        table.add_column(heading)
    for place in range(max(len(shown) for _, shown in columns)):
        row = [escape(named(shown[place].item_id)) if place < len(shown) else "" for _, shown in columns]
        table.add_row(str(place + 1), *row)
    return table


def _badge(name: str) -> str:
    return f"[{STYLES[name]}] {name} [/]" if name in STYLES else name
