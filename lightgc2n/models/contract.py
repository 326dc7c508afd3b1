"""What every model of the zoo can do; the training loop, evaluation and commands know nothing else of it."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from lightgc2n.data.batches import Asked, Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.errors import SettingError

WITH_LATENT_USERS = (
    *("lightgc2n", "lightgc2n-wo-la", "lightgc2n-wo-dr", "lightgc2n-wo-cl", "lightgc2n-wo-s"),
    *("lightgc2n-plus", "lightgc2n-plus-wo-state", "lightgc2n-plus-wo-steps", "lightgc2n-plus-wo-memory"),
)


@dataclass(frozen=True)
class LatentUsers:
    """The A latent users of B accounts, and whose each of T events is."""

    ownership: Float[Tensor, "B A T"]  # by the places of the history: sums to one over A, 0 on padding
    weight: Float[Tensor, "B A"]  # how much of the account each latent user is; sums to one over A


class Model(nn.Module):
    """A floor or a trained model."""

    config: Any
    scores_unseen_items: ClassVar[bool] = False  # whether a score for an item without training events means anything

    def carried(self) -> dict[str, str]:
        """What newer data finds by id: saved tensors whose rows stand for `accounts` or `items`.

        Other parameters are carried over as they are. Other buffers are those of the newer data, like a graph, unless
        they are said to be `whole`: drawn once, or learned.
        """
        return {}

    @property
    def fixed_work(self) -> bool:
        """Whether `encode` and `losses` depend on the shapes of a batch alone and never wait for the host."""
        return False

    def start_epoch(self, epoch: int) -> None:
        """Refreshes what is computed once an epoch."""

    @abstractmethod
    def encode(self) -> Any:
        """All that does not depend on the batch, once a step and once an evaluation."""

    def losses(self, encoded: Any, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """The terms of the loss by name, which the loop adds; none for a model that is not trained."""
        return {}

    @abstractmethod
    def scores(self, encoded: Any, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """A score for each item of the domain."""

    def fold_in_scores(self, encoded: Any, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """Scores by the history alone, where a model would otherwise use what training knows of the account."""
        return self.scores(encoded, batch, domain)

    def people(self, encoded: Any, batch: Batch) -> LatentUsers:
        """The latent users that a history gives, for models that have them."""
        raise SettingError(
            f"this model has no latent users, so it cannot say whose an event is. "
            f"Train one that has: {', '.join(WITH_LATENT_USERS)}."
        )

    def refresh(self, known: Training) -> bool:
        """Takes in what has happened up to the questions, by counting alone; says whether it has.

        Only protocols that know of such events ask for it. Weights stay as they were learned.
        """
        return False

    def calibrate(self, validation: Callable[[], Iterator[Asked]]) -> None:
        """Fits on validation events what is fitted there."""

    def fitted(self) -> dict[str, float]:
        """What `calibrate` has chosen, for reports."""
        return {}
