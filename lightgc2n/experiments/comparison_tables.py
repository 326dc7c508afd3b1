"""A comparison as tables: which model predicts best, on which targets, and at what cost."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lightgc2n.experiments.table import BUDGET, BUDGET_NOTE, Cell, Table, markdown, p_text
from lightgc2n.metrics.paired_tests import SIGNIFICANCE

TRAINED = "lightgc2n-plus"  # the model to try beside simple baselines
BEYOND = ("coverage %", "novelty, bits", "diversity", "popularity bias")
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
    """The metrics of all models, best first, in each domain, by kind of target, and the cost of each model."""
    result = result | {"models": ranked_models(result)}
    caption = f"{result['dataset']['name']}, protocol {result['split']['protocol']}, %"
    metric = decisive_metric(result)
    headings = [*shown_metrics(result), f"95 % of {metric}", "p"]
    yield _table("metrics", "\n".join([caption, *result["stamps"]]), headings, _metric_rows(result))
    for domain in domains_of(result):
        rows = {name: cells for name, (*cells, _, _) in _metric_rows(result, domain).items()}
        caption = f"targets of {domain}, among its items, %"
        yield _table(domain.replace(" ", "-"), caption, shown_metrics(result), rows)
    yield _by_target(result)
    if beyond := {name: facts["beyond"] for name, facts in result["models"].items() if "beyond" in facts}:
        yield _table("beyond", "beyond accuracy, lists of 20, with 95 % intervals", BEYOND, _beyond_rows(beyond))
    costs = {name: cost_cells(facts) for name, facts in result["models"].items()}
    told = [place for place in range(len(COST_HEADINGS)) if any(cells[place].text != "-" for cells in costs.values())]
    headings = [COST_HEADINGS[place] for place in told]
    yield _table("cost", "cost", headings, {name: [cells[place] for place in told] for name, cells in costs.items()})


def run_tables(result: dict[str, Any]) -> Iterator[Table]:
    """One model: its metrics with intervals, the decisive one on each kind of target, and the cost, a row for each."""
    ((name, facts),) = result["models"].items()
    metric, protocol = decisive_metric(result), result["split"]["protocol"]
    caption = "\n".join([f"{result['dataset']['name']}, protocol {protocol}, %", *result["stamps"]])
    values = facts["metrics"]["all"]
    metrics = [one for one in values if one != "queries"]
    rows = ((one, _percent(values[one]["value"]), _interval(values[one])) for one in metrics)
    yield _plain("metrics", caption, (name, "value", "95 % interval"), rows)
    subsets = facts["metrics"].items()
    by_target = (
        (one, f"{of['queries']:,}", _percent(of[metric]["value"]), _interval(of[metric])) for one, of in subsets
    )
    yield _plain("targets", f"{metric} by target, %", ("targets", "queries", metric, "95 % interval"), by_target)
    costs = zip(COST_HEADINGS, cost_cells(facts), strict=True)
    texts = ((name, cell.text) for name, cell in costs if cell.text != "-" and name != "s in all")
    yield _plain("cost", "", ("cost", ""), texts)


def _plain(name: str, caption: str, headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    return Table(name, caption, headings, tuple(tuple(map(Cell, row)) for row in rows))


def _interval(value: dict[str, float]) -> str:
    return f"{_percent(value['low'])} to {_percent(value['high'])}"


def _beyond_rows(beyond: dict[str, dict[str, dict[str, float]]]) -> dict[str, list[Cell]]:
    """Coverage in percent, novelty in bits, diversity and popularity bias, each with its interval."""
    rows = {}
    for name, measures in beyond.items():
        cells = []
        for measure, cell in measures.items():
            scale = 100 if measure == "coverage" else 1
            value, low, high = (f"{scale * cell[key]:.2f}" for key in ("value", "low", "high"))
            cells.append(Cell(f"{value} ({low} to {high})"))
        rows[name] = cells
    return rows


def comparison_notes(result: dict[str, Any]) -> Iterator[str]:
    """The notes below the tables."""
    counts = result["counts"]
    catalogue = "the items of their domain" if domains_of(result) else f"all {counts['items']:,} items"
    yield (
        f"{counts['test_queries']:,} test targets of {counts['test_accounts']:,} accounts, ranked among {catalogue}; "
        f"{counts['test_repeat_targets']:,} repeat an item of the history, "
        f"{counts['test_targets_unseen_in_training']:,} never occur in training."
        + (f" p: paired test on {decisive_metric(result)} against the best." if len(result["models"]) > 1 else "")
    )
    if any(facts.get("ended_by") == "budget" for facts in result["models"].values()):
        yield BUDGET_NOTE
    for name, facts in result["models"].items():
        if facts.get("ended_by") == "budget" and facts["best_epoch"] == facts["epochs"] - 1:
            last = f"the last of {facts['epochs']} epochs"
            yield f"{name} was stopped too early: validation was still improving at {last}."
    if "similar_by" in result:
        yield (
            "coverage: items in at least one list. novelty: mean -log2 of an item's share of training events. "
            f"diversity: 1 - mean similarity of two items of a list, by {result['similar_by']}. "
            "popularity bias: mean popularity percentile of a list minus that of the history."
        )
    yield from (f"left out: {reason}" for reason in result.get("left_out", {}).values())
    yield from result["notes"]


def ranked_models(result: dict[str, Any]) -> dict[str, Any]:
    """The models of a comparison, the best of the decisive metric first."""
    metric = decisive_metric(result)
    return dict(sorted(result["models"].items(), key=lambda model: -model[1]["metrics"]["all"][metric]["value"]))


def conclusion(result: dict[str, Any], data: Path, out: Path | None, options: str = "") -> str:
    """The best model, whether a simple baseline does as well, and the next command.

    Args:
        options: options of the comparison that training needs too, such as `--protocol time`.
    """
    models, metric = ranked_models(result), decisive_metric(result)
    best, facts = next(iter(models.items()))
    simple = {name: one for name, one in models.items() if "epochs" not in one}
    text = f"Best: {best}, {metric} {_percent(facts['metrics']['all'][metric]['value'])} %."
    near = next((name for name, one in simple.items() if name != best and one["paired"]["p"] >= SIGNIFICANCE), "")
    if near and best not in simple:
        text += f" {near}, a simple baseline, is not significantly worse (p = {p_text(simple[near]['paired']['p'])})."
    if len(simple) == len(models):
        options += f" --out {out} --force" if out else " --out compared"
        return f"{text} Is a trained model better? Next: lightgc2n compare {data} --models simple,{TRAINED}{options}"
    if best in simple or out is None:
        return f"{text} Next: lightgc2n train {data} --model {best}{options} --out run"
    return f"{text} Next: lightgc2n recommend {out / 'runs' / best} --account ID"


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
    return _table("targets", f"{metric} by target, %", list(subsets), rows, [len(rows) - 2])


def _table(
    name: str,
    caption: str,
    headings: Sequence[str],
    rows: dict[str, list[Cell]],
    rules: Iterable[int] = (),
) -> Table:
    """A row per model."""
    cells = tuple((Cell(model), *row) for model, row in rows.items())
    return Table(name, caption, ("model", *headings), cells, rules=tuple(rules))


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"
