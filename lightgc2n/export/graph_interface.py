"""What every graph is given and gives: a history goes in, the best items and whose its events are come out.

    history   int64 [B, T]    items, oldest first, the newest in the last column; -1 fills up on the left
    handicap  float [H, M]    added to the scores before the best are taken, for all rows (H = 1) or for each: 0, or
                              -inf for an item that may not be listed
    k         int64 [1]       how many of the best
    account   float [B, W]    lightgc2n alone: where the account starts, seen from the mean of all; someone new: zeros
    held      int64 [B, N]    lightgc2n alone: items the account has besides its history; -1 fills up

    best_scores, best_items   [B, K]     best first, of equal scores the lower item
    scores                    [B, M]     of all items, without the handicap
    ownership                 [B, A, T]  how far each event is each latent user's; 0 where there is none
    weights                   [B, A]     how much of the account each latent user is

Shapes: B batch, T history, M items, A latent users, D width.
"""

from dataclasses import dataclass

from torch import Tensor

from lightgc2n.export.onnx_builder import FLOAT, INT64, LAST, Array, Graph, Value

HISTORY, HANDICAP, K, ACCOUNT, HELD = "history", "handicap", "k", "account", "held"
BEST_SCORES, BEST_ITEMS, SCORES, OWNERSHIP, WEIGHTS = "best_scores", "best_items", "scores", "ownership", "weights"
NOTHING = -1  # in place of an item


@dataclass(frozen=True)
class LatentUsers:
    """Whose each event is [B, A, T], and how much of the account each latent user is [B, A]."""

    ownership: Value
    weights: Value


@dataclass(frozen=True)
class Answer:
    """What a model says of histories: a score for every item [B, M], and the latent users where it has them."""

    scores: Value
    users: LatentUsers | None
    table: str  # the name of the item vectors that the scores are products with


@dataclass(frozen=True)
class Events:
    """Items with gaps: numbers that are safe to look up, and which of them are there, as bool and as 0 or 1."""

    numbers: Value  # -1 in a gap
    items: Value
    known: Value
    there: Value

    @classmethod
    def of(cls, numbers: Value) -> "Events":
        known = numbers >= 0
        return cls(numbers, numbers.at_least(0), known, known.cast(FLOAT))

    def newest(self, longest: int) -> "Events":
        """The same with at most so many columns."""
        parts = (value.part(-longest, LAST, 1) for value in (self.numbers, self.items, self.known, self.there))
        return Events(*parts)

    def count(self) -> Value:
        """How many there are in each row, [B, 1]."""
        return self.there.sum(1, keep=True)


def finish(graph: Graph, items: int, answer: Answer) -> None:
    """Adds the best items to what a model says, and names the outputs."""
    handicap, k = graph.input(HANDICAP, FLOAT, ["H", items]), graph.input(K, INT64, [1])
    # Of equal scores the lower item comes first: so TopK is defined.
    best_scores, best_items = graph.add_many("TopK", 2, answer.scores + handicap, k, axis=1)
    graph.output(BEST_SCORES, best_scores, FLOAT, ["B", "K"])
    graph.output(BEST_ITEMS, best_items, INT64, ["B", "K"])
    graph.output(SCORES, answer.scores, FLOAT, ["B", items])
    if answer.users is not None:
        graph.output(OWNERSHIP, answer.users.ownership, FLOAT, ["B", "A", "T"])
        graph.output(WEIGHTS, answer.users.weights, FLOAT, ["B", "A"])


def array(tensor: Tensor) -> Array:
    """A tensor of the model as an array, without its gradient."""
    return tensor.detach().cpu().numpy()
