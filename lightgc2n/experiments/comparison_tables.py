"""A comparison as tables: which model predicts best, on which targets, and at what cost."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lightgc2n.experiments.table import BUDGET, BUDGET_NOTE, Cell, Table, markdown, p_text

COST_HEADINGS = (
    "parameters",
    "stored numbers",
    "epochs",
    "best epoch",
    "ended by",
    "s an epoch",
    "s in all",
    "peak MB",
)


def comparison_tables(result: dict[str, Any]) -> Iterator[Table]:
    """The metrics of all models, in each domain, by kind of target, and the cost of each model."""
    caption = f"{result['dataset']['name']}, protocol {result['split']['protocol']}, %"
    metric = decisive_metric(result)
    headings = [*shown_metrics(result), f"95 % of {metric}", "p"]
    yield _table("metrics", "\n".join([caption, *result["stamps"]]), headings, _metric_rows(result), result)
    for domain in domains_of(result):
        rows = {name: cells for name, (*cells, _, _) in _metric_rows(result, domain).items()}
        caption = f"targets of {domain}, among its items, %"
        yield _table(domain.replace(" ", "-"), caption, shown_metrics(result), rows, result)
    yield _by_target(result)
    costs = {name: cost_cells(facts) for name, facts in result["models"].items()}
    yield _table("cost", "cost", COST_HEADINGS, costs, result)


def comparison_notes(result: dict[str, Any]) -> Iterator[str]:
    """The notes below the tables."""
    counts = result["counts"]
    catalogue = "the items of their domain" if domains_of(result) else f"all {counts['items']:,} items"
    yield (
        f"{counts['test_queries']:,} test targets of {counts['test_accounts']:,} accounts, ranked among {catalogue}; "
        f"{counts['test_repeat_targets']:,} repeat an item of the history, "
        f"{counts['test_targets_unseen_in_training']:,} never occur in training. "
        f"p: paired test on {decisive_metric(result)} against the best."
    )
    if any(facts.get("ended_by") == "budget" for facts in result["models"].values()):
        yield BUDGET_NOTE
    yield from (f"left out: {reason}" for reason in result.get("left_out", {}).values())
    yield from result["notes"]


def comparison_markdown(result: dict[str, Any]) -> str:
    """The tables and their notes in Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    made = f"Dataset checksum {result['dataset']['checksum'][:12]}, seed {result['seed']}; {versions}."
    tables = [line for table in comparison_tables(result) for line in markdown(table)]
    return "\n".join([*tables, *(f"{note}\n" for note in comparison_notes(result)), made]) + "\n"


def shown_metrics(result: dict[str, Any]) -> list[str]:
    """The metrics at the shortest and the longest list."""
    ends = sorted({result["cutoffs"][0], result["cutoffs"][-1]})
    return [f"{metric}@{cutoff}" for metric in ("RC", "MRR", "NDCG") for cutoff in ends]


def decisive_metric(result: dict[str, Any]) -> str:
    """The metric of the intervals and paired tests."""
    return f"MRR@{result['cutoffs'][-1]}"


def domains_of(result: dict[str, Any]) -> list[str]:
    """The subsets that are domains, where each domain has queries of its own."""
    return [subset for subset in next(iter(result["models"].values()))["metrics"] if subset.startswith("domain ")]


def cost_cells(facts: dict[str, Any]) -> list[Cell]:
    """The cost of a model in the order of COST_HEADINGS; a dash where it is unknown or does not apply."""
    training, trained = ["-"] * 4, "epochs" in facts
    if trained:
        ended = f"budget {BUDGET}" if facts["ended_by"] == "budget" else facts["ended_by"]
        an_epoch = f"{facts['training_seconds'] / max(1, facts['epochs']):.2f}" if "training_seconds" in facts else "-"
        training = [str(facts["epochs"]), str(facts["best_epoch"] + 1), ended, an_epoch]
    stored = "-" if trained else f"{facts['stored_numbers']:,}"
    peak = f"{facts['peak_memory_mb']:,.0f}" if "peak_memory_mb" in facts else "-"
    return [Cell(text) for text in (f"{facts['parameters']:,}", stored, *training, f"{facts['seconds']:.1f}", peak)]


def _metric_rows(result: dict[str, Any], subset: str = "all") -> dict[str, list[Cell]]:
    """For each model its metrics, the best of each column marked, the interval of the decisive one, and p."""
    metric, best = decisive_metric(result), _best(result, subset)
    rows = {}
    for name, facts in result["models"].items():
        values = facts["metrics"][subset]
        low, high = _percent(values[metric]["low"]), _percent(values[metric]["high"])
        rows[name] = [
            *(Cell(_percent(values[one]["value"]), mark="best" if name in best[one] else "") for one in best),
            Cell(f"{low} to {high}"),
            Cell("best" if facts["paired"]["against"] == name else p_text(facts["paired"]["p"])),
        ]
    return rows


def _best(result: dict[str, Any], subset: str) -> dict[str, set[str]]:
    """For each shown metric the models with the highest printed value; none where there is one model."""
    best = {}
    for metric in shown_metrics(result):
        values = {name: _percent(facts["metrics"][subset][metric]["value"]) for name, facts in result["models"].items()}
        highest = max(values.values(), key=float)
        best[metric] = {name for name, value in values.items() if value == highest} if len(values) > 1 else set()
    return best


def _by_target(result: dict[str, Any]) -> Table:
    """The decisive metric on each subset of the targets, and the size of the subset."""
    metric, subsets = decisive_metric(result), next(iter(result["models"].values()))["metrics"]
    rows = {
        name: [Cell(_percent(facts["metrics"][subset][metric]["value"])) for subset in subsets]
        for name, facts in result["models"].items()
    }
    rows["queries"] = [Cell(f"{values['queries']:,}") for values in subsets.values()]
    return _table("targets", f"{metric} by target, %", list(subsets), rows, result, [len(rows) - 2])


def _table(
    name: str,
    caption: str,
    headings: Sequence[str],
    rows: dict[str, list[Cell]],
    result: dict[str, Any],
    rules: Iterable[int] = (),
) -> Table:
    """A row per model, with a line between the simple baselines and the trained models."""
    simple = [place for place, facts in enumerate(result["models"].values()) if "epochs" not in facts]
    cells = tuple((Cell(model), *row) for model, row in rows.items())
    return Table(name, caption, ("model", *headings), cells, rules=(*simple[-1:], *rules))


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"
