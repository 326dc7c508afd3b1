"""The inputs and outputs of every exported graph.

    history   int64 [B, T]    items, oldest first, the newest in the last column; padded with -1 on the left
    handicap  float [H, M]    added to the scores before TopK, one row for all (H = 1) or one for each: 0, or -inf for
                              an item that may not be listed
    k         int64 [1]       the length of the list
    account   float [B, W]    lightgc2n only: the account vector minus the mean of all; zeros for a new account
    held      int64 [B, N]    lightgc2n only: training items of the account besides its history; padded with -1

    best_scores, best_items   [B, K]     best first, of equal scores the lower item
    scores                    [B, M]     of all items, without the handicap
    ownership                 [B, A, T]  the share of each latent user in each event; 0 for padding
    weights                   [B, A]     the share of each latent user in the account

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
    """The share of each latent user in each event [B, A, T] and in the account [B, A]."""

    ownership: Value
    weights: Value


@dataclass(frozen=True)
class ModelOutputs:
    """A score for every item [B, M], and the latent users if the model has them."""

    scores: Value
    users: LatentUsers | None
    table: str  # the name of the item vectors in the weights


@dataclass(frozen=True)
class Events:
    """Padded items: indices that are valid to gather, and the mask of real ones as bool and as 0 or 1."""

    numbers: Value  # -1 for padding
    items: Value
    known: Value
    there: Value

    @classmethod
    def of(cls, numbers: Value) -> "Events":
        known = numbers >= 0
        return cls(numbers, numbers.at_least(0), known, known.cast(FLOAT))

    def newest(self, longest: int) -> "Events":
        """The last columns, at most so many."""
        parts = (value.slice(-longest, LAST, 1) for value in (self.numbers, self.items, self.known, self.there))
        return Events(*parts)

    def count(self) -> Value:
        """The number of events of each row [B, 1]."""
        return self.there.sum(1, keep=True)


def add_outputs(graph: Graph, items: int, answer: ModelOutputs) -> None:
    """Add TopK to the scores of a model, and name the outputs."""
    handicap, k = graph.input(HANDICAP, FLOAT, ["H", items]), graph.input(K, INT64, [1])
    # ONNX defines TopK so that of equal scores the lower index comes first.
    best_scores, best_items = graph.add_many("TopK", 2, answer.scores + handicap, k, axis=1)
    graph.output(BEST_SCORES, best_scores, FLOAT, ["B", "K"])
    graph.output(BEST_ITEMS, best_items, INT64, ["B", "K"])
    graph.output(SCORES, answer.scores, FLOAT, ["B", items])
    if answer.users is not None:
        graph.output(OWNERSHIP, answer.users.ownership, FLOAT, ["B", "A", "T"])
        graph.output(WEIGHTS, answer.users.weights, FLOAT, ["B", "A"])


def array(tensor: Tensor) -> Array:
    """A tensor as an array, detached."""
    return tensor.detach().cpu().numpy()
