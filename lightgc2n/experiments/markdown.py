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
        kinds = [percent(metrics[kind][decisive]["value"]) if kind in metrics else "-" for kind in ("repeat", "new")]
        p = "best" if facts["paired"]["against"] == name else chance(facts["paired"]["p"])
        values = [percent(metrics["all"][metric]["value"]) for metric in shown]
        stored = f"{facts['parameters'] + facts['stored_numbers']:,}"
        yield "| " + " | ".join([name, *values, f"{percent(low)} to {percent(high)}", *kinds, p, stored]) + " |"
    yield ""
    yield (
        f"{counts['test_queries']:,} targets of {counts['test_accounts']:,} accounts among {counts['items']:,} items; "
        f"{counts['test_repeat_targets']:,} repeat an item of the history, "
        f"{counts['test_targets_unseen_in_training']:,} never occur in training. "
        f"repeat, new: {decisive} on those targets. p: paired test on {decisive} against the best."
    )
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    yield f"Dataset checksum {result['dataset']['checksum'][:12]}, seed {result['seed']}; {versions}."


def percent(share: float) -> str:
    """A share as a percentage with two decimals."""
    return f"{100 * share:.2f}"


def chance(p: float) -> str:
    """A p-value no finer than its 10,000 tosses can tell."""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"
