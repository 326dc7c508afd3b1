"""A comparison on the screen: who predicts best, on which targets, and at what cost."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from lightgc2n.experiments.markdown import (
    BUDGET_NOTE,
    COST_HEADINGS,
    cost_cells,
    decisive_metric,
    domain_cells,
    domains_of,
    is_trained,
    metric_cells,
    percent,
    shown_metrics,
)

Rows = dict[str, list[str]]  # model -> its cells


def comparison_tables(result: dict[str, Any]) -> Iterator[Table]:
    """The metrics, how each model does on targets that repeat the history and on new ones, and what each one costs."""
    title = f"{result['dataset']['name']}, protocol {result['split']['protocol']}, %"
    decisive = decisive_metric(result)
    headings = [*shown_metrics(result), f"95 % of {decisive}", "p"]
    yield _table("\n".join([title, *result["stamps"]]), headings, metric_cells(result, "[bold]{}[/]"), result)
    for domain in domains_of(result):
        cells = domain_cells(result, domain, "[bold]{}[/]")
        yield _table(f"targets of {domain}, among its items, %", shown_metrics(result), cells, result)
    subsets = list(next(iter(result["models"].values()))["metrics"])
    by_kind = _table(f"{decisive} by target, %", subsets, _kind_rows(result, subsets), result)
    queries = [f"{found['queries']:,}" for found in next(iter(result["models"].values()))["metrics"].values()]
    by_kind.add_section()
    by_kind.add_row("queries", *queries)
    yield by_kind
    cost = {name: cost_cells(facts) for name, facts in result["models"].items()}
    yield _table("cost", COST_HEADINGS, cost, result)


def comparison_notes(result: dict[str, Any]) -> Iterator[str]:
    """What a reader of the tables must know."""
    counts = result["counts"]
    catalogue = "the items of their domain" if domains_of(result) else f"all {counts['items']:,} items"
    yield (
        f"{counts['test_queries']:,} test targets of {counts['test_accounts']:,} accounts, ranked among {catalogue}; "
        f"{counts['test_targets_unseen_in_training']:,} never occur in training. "
        f"p: paired test on {decisive_metric(result)} against the best."
    )
    if any(facts.get("ended_by") == "budget" for facts in result["models"].values()):
        yield BUDGET_NOTE
    if hidden := result["cutoffs"][1:-1]:
        yield f"Also measured at {', '.join(map(str, hidden))}: see --json or --out."
    yield from (f"left out: {reason}" for reason in result.get("left_out", {}).values())
    yield from result["notes"]


def _table(title: str, headings: Sequence[str], rows: Rows, result: dict[str, Any]) -> Table:
    """Floors above a line, trained models below it."""
    table = Table(title=title)
    table.add_column("model")
    for heading in headings:
        table.add_column(heading, justify="right")
    floors = [name for name, facts in result["models"].items() if not is_trained(facts)]
    for name, cells in rows.items():
        table.add_row(name, *cells, end_section=bool(floors) and name == floors[-1])
    return table


def _kind_rows(result: dict[str, Any], subsets: Sequence[str]) -> Rows:
    decisive = decisive_metric(result)
    return {
        name: [percent(facts["metrics"][subset][decisive]["value"]) for subset in subsets]
        for name, facts in result["models"].items()
    }
