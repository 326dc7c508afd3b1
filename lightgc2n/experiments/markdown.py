"""A comparison as Markdown, for documents."""

from collections.abc import Iterator
from typing import Any


def comparison_markdown(result: dict[str, Any]) -> str:
    """The main table with intervals, then how each model does on repeats and on new items."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: dict[str, Any]) -> Iterator[str]:
    ends = sorted({result["cutoffs"][0], result["cutoffs"][-1]})
    shown = [f"{metric}@{cutoff}" for metric in ("RC", "MRR", "NDCG") for cutoff in ends]
    decisive = f"MRR@{result['cutoffs'][-1]}"
    split, counts = result["split"], result["counts"]
    yield f"**{result['dataset']['name']}**, protocol `{split['protocol']}`, in %"
    for stamp in result["stamps"]:
        yield f"\n**{stamp}**"
    yield ""
    yield "| " + " | ".join(["model", *shown, f"{decisive}: 95 %", "repeat", "new", "p", "stored numbers"]) + " |"
    yield "|---" * (len(shown) + 6) + "|"
    for name, facts in result["models"].items():
        metrics = facts["metrics"]
        low, high = metrics["all"][decisive]["low"], metrics["all"][decisive]["high"]
        kinds = [_percent(metrics[kind][decisive]["value"]) if kind in metrics else "-" for kind in ("repeat", "new")]
        chance = "best" if facts["paired"]["against"] == name else f"{facts['paired']['p']:.4f}"
        values = [_percent(metrics["all"][metric]["value"]) for metric in shown]
        stored = f"{facts['parameters'] + facts['stored_numbers']:,}"
        yield "| " + " | ".join([name, *values, f"{_percent(low)} to {_percent(high)}", *kinds, chance, stored]) + " |"
    yield ""
    yield (
        f"{counts['test_queries']:,} targets of {counts['test_accounts']:,} accounts among {counts['items']:,} items; "
        f"{counts['test_repeat_targets']:,} repeat an item of the history, "
        f"{counts['test_targets_unseen_in_training']:,} never occur in training. repeat, new: {decisive} on those targets. "
        f"p: paired test on {decisive} against the best."
    )
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    yield f"Dataset checksum {result['dataset']['checksum'][:12]}, seed {result['seed']}; {versions}."


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"
