"""Find results that contradict themselves: no ranking of one set of targets could give them.

A target at rank r adds 1 to Recall@N and 1/r to MRR@N if r is at most N. A target at ranks 6 to 20 therefore adds 1 to
RC@20 - RC@5, and at least 1/20 and at most 1/6 to MRR@20 - MRR@5.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from lightgc2n.experiments.results import METRICS

Scores = Mapping[str, float]  # the four metrics, in % as printed
Which = TypeVar("Which")


def impossible(cells: Mapping[Which, Scores], rounding: float = 0.005) -> dict[Which, tuple[str, ...]]:
    """For each impossible cell the rules that it breaks.

    Args:
        rounding: how much a printed number may differ from the measured one.
    """
    rules = {which: tuple(contradictions(scores, rounding)) for which, scores in cells.items()}
    return {which: broken for which, broken in rules.items() if broken}


def contradictions(scores: Scores, rounding: float = 0.005) -> Iterator[str]:
    """Each inequality that the four metrics of one model on one dataset break, with its numbers."""
    recall5, recall20, mrr5, mrr20 = (scores[metric] for metric in METRICS)
    hits, gain = recall20 - recall5, mrr20 - mrr5  # of the ranks 6 to 20
    both = 2 * rounding + 1e-9  # a difference of two rounded numbers, and floating-point error
    if hits < -both:
        yield f"RC@20 {recall20:.2f} is below RC@5 {recall5:.2f}"
    elif gain > hits / 6 + both * (1 + 1 / 6):
        yield f"MRR grows by {gain:.2f} from 5 to 20, and {hits:.2f} more hits can add at most {hits / 6:.2f}"
    elif gain < hits / 20 - both * (1 + 1 / 20):
        yield f"MRR grows by {gain:.2f} from 5 to 20, and {hits:.2f} more hits must add at least {hits / 20:.2f}"
    for cutoff, recall, mrr in ((5, recall5, mrr5), (20, recall20, mrr20)):
        if mrr > recall + both:
            yield f"MRR@{cutoff} {mrr:.2f} is above RC@{cutoff} {recall:.2f}"
        if mrr < recall / cutoff - both:
            yield f"MRR@{cutoff} {mrr:.2f} is below 1/{cutoff} of RC@{cutoff} {recall:.2f}"


def checked(cells: Mapping[str, Scores]) -> str:
    """A note for a table of ours: how many of its entries are impossible.

    Args:
        cells: the four metrics in % as printed, by the title of the row.
    """
    broken = impossible(cells)
    if not broken:
        return f"Arithmetic: none of the {len(cells)} entries breaks it."
    every = "; ".join(f"{name}: {', '.join(rules)}" for name, rules in broken.items())
    return f"Arithmetic: {len(broken)} of {len(cells)} entries break it: {every}."
