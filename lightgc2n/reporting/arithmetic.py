"""Which results contradict themselves: no ranking of one set of targets, each asked once, could give them.

A target at rank r adds 1 to Recall@N and 1/r to MRR@N where r is within N. So between 6 and 20 it adds 1 to
RC@20 - RC@5, and at least 1/20 and at most 1/6 to MRR@20 - MRR@5.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

METRICS = ("RC@5", "RC@20", "MRR@5", "MRR@20")
Scores = Mapping[str, float]  # the four metrics, in % as printed
Which = TypeVar("Which")


def impossible(cells: Mapping[Which, Scores], rounding: float = 0.005) -> dict[Which, tuple[str, ...]]:
    """For each cell that cannot be, what it breaks.

    Args:
        rounding: by how much a printed number may differ from the number that was measured.
    """
    found = {which: tuple(contradictions(scores, rounding)) for which, scores in cells.items()}
    return {which: broken for which, broken in found.items() if broken}


def contradictions(scores: Scores, rounding: float = 0.005) -> Iterator[str]:
    """Each inequality that the four metrics of one model on one dataset break, with its numbers."""
    recall5, recall20, mrr5, mrr20 = (scores[metric] for metric in METRICS)
    hits, gain = recall20 - recall5, mrr20 - mrr5  # of the ranks 6 to 20
    both = 2 * rounding + 1e-9  # a difference of two printed numbers; the rest is for binary fractions
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
