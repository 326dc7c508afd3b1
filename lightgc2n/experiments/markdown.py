"""A comparison as Markdown, for documents, and what its tables share with those on the screen."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BUDGET_SIGN = "†"
BUDGET_NOTE = f"{BUDGET_SIGN} ended by its epochs, not by patience: it may do better with more."
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


def comparison_markdown(result: dict[str, Any]) -> str:
    """The main table with intervals and how each model does on repeats and on new items, then what each one costs."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: dict[str, Any]) -> Iterator[str]:
    decisive = decisive_metric(result)
    split, counts = result["split"], result["counts"]
    yield f"**{result['dataset']['name']}**, protocol `{split['protocol']}`, in %"
    for stamp in result["stamps"]:
        yield f"\n**{stamp}**"
    yield ""
    kinds = ("repeat", "new")
    headings = [*shown_metrics(result), f"{decisive}: 95 %", *kinds, "p"]
    yield from _table(headings, metric_cells(result, "**{}**", kinds))
    for domain in domains_of(result):
        yield f"\nTargets of {domain}, among its items:\n"
        yield from _table(shown_metrics(result), domain_cells(result, domain, "**{}**"))
    yield ""
    catalogue = "the items of their domain" if domains_of(result) else f"{counts['items']:,} items"
    yield (
        f"{counts['test_queries']:,} targets of {counts['test_accounts']:,} accounts among {catalogue}; "
        f"{counts['test_repeat_targets']:,} repeat an item of the history, "
        f"{counts['test_targets_unseen_in_training']:,} never occur in training. "
        f"repeat, new: {decisive} on those targets. p: paired test on {decisive} against the best."
    )
    yield ""
    yield from _table(COST_HEADINGS, {name: cost_cells(facts) for name, facts in result["models"].items()})
    yield ""
    if any(facts.get("ended_by") == "budget" for facts in result["models"].values()):
        yield BUDGET_NOTE
    yield from (f"Left out: {reason}" for reason in result.get("left_out", {}).values())
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    yield f"Dataset checksum {result['dataset']['checksum'][:12]}, seed {result['seed']}; {versions}."


def _table(headings: Sequence[str], rows: Mapping[str, list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(['model', *headings])} |"
    yield "|---" * (len(headings) + 1) + "|"
    yield from (f"| {' | '.join([name, *cells])} |" for name, cells in rows.items())


def metric_cells(result: dict[str, Any], bold: str, kinds: Sequence[str] = ()) -> dict[str, list[str]]:
    """For each model its metrics, the interval of the decisive one, that one on some kinds of targets, and p.

    Args:
        bold: how the best of a column is marked, as `**{}**`.
    """
    shown, decisive, best = shown_metrics(result), decisive_metric(result), best_of(result)
    cells = {}
    for name, facts in result["models"].items():
        metrics = facts["metrics"]
        found = metrics["all"]
        values = [(percent(found[metric]["value"]), name in best[metric]) for metric in shown]
        cells[name] = [
            *(bold.format(value) if is_best else value for value, is_best in values),
            f"{percent(found[decisive]['low'])} to {percent(found[decisive]['high'])}",
            *(percent(metrics[kind][decisive]["value"]) if kind in metrics else "-" for kind in kinds),
            "best" if facts["paired"]["against"] == name else chance(facts["paired"]["p"]),
        ]
    return cells


def domains_of(result: dict[str, Any]) -> list[str]:
    """The subsets that stand for a domain, where each is asked for by itself."""
    return [subset for subset in next(iter(result["models"].values()))["metrics"] if subset.startswith("domain ")]


def domain_cells(result: dict[str, Any], domain: str, bold: str) -> dict[str, list[str]]:
    """For each model its metrics on the targets of one domain."""
    best = best_of(result, domain)
    return {
        name: [
            bold.format(value) if name in best[metric] else value
            for metric in shown_metrics(result)
            for value in [percent(facts["metrics"][domain][metric]["value"])]
        ]
        for name, facts in result["models"].items()
    }


def shown_metrics(result: dict[str, Any]) -> list[str]:
    """The metrics at the shortest and the longest list."""
    ends = sorted({result["cutoffs"][0], result["cutoffs"][-1]})
    return [f"{metric}@{cutoff}" for metric in ("RC", "MRR", "NDCG") for cutoff in ends]


def decisive_metric(result: dict[str, Any]) -> str:
    """The metric that intervals and paired tests are about."""
    return f"MRR@{result['cutoffs'][-1]}"


def best_of(result: dict[str, Any], subset: str = "all") -> dict[str, set[str]]:
    """For each shown metric the models with the highest value, to the digits shown; none where there is one model."""
    best = {}
    for metric in shown_metrics(result):
        values = {name: percent(facts["metrics"][subset][metric]["value"]) for name, facts in result["models"].items()}
        highest = max(values.values(), key=float)
        best[metric] = {name for name, value in values.items() if value == highest} if len(values) > 1 else set()
    return best


def is_trained(facts: dict[str, Any]) -> bool:
    """Whether a model has had epochs; floors have none."""
    return "epochs" in facts


def cost_cells(facts: dict[str, Any]) -> list[str]:
    """What a model costs, in the order of COST_HEADINGS; what is not known or does not apply is a dash."""
    training = ["-"] * 4
    if is_trained(facts):
        ended = f"budget {BUDGET_SIGN}" if facts["ended_by"] == "budget" else facts["ended_by"]
        an_epoch = f"{facts['training_seconds'] / max(1, facts['epochs']):.2f}" if "training_seconds" in facts else "-"
        training = [str(facts["epochs"]), str(facts["best_epoch"] + 1), ended, an_epoch]
    peak = f"{facts['peak_memory_mb']:,.0f}" if "peak_memory_mb" in facts else "-"
    return [
        f"{facts['parameters']:,}",
        f"{facts['stored_numbers']:,}" if not is_trained(facts) else "-",
        *training,
        f"{facts['seconds']:.1f}",
        peak,
    ]


def percent(share: float) -> str:
    """A share as a percentage with two decimals."""
    return f"{100 * share:.2f}"


def chance(p: float) -> str:
    """A p-value no finer than its 10,000 tosses can tell."""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"
