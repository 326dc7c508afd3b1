"""The interface of every model; training, evaluation and the commands use nothing else of a model."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from lightgc2n.data.batches import Batch, LabelledBatch, TrainingBatch
from lightgc2n.data.dataset import Domain, Longs
from lightgc2n.data.splits import Training
from lightgc2n.errors import SettingError

LONGEST_CAPTURED = 256  # events: longer sequences would need too much padding to a fixed size
NO_LATENT_USERS = "this model has no latent users for its events. Train a model that has, such as lightgc2n-plus."


@dataclass(frozen=True)
class LatentUsers:
    """The A latent users of B accounts, and how likely each of T events is theirs."""

    ownership: Float[
        Tensor, "B A T"
    ]  # probability of each latent user for each event; sums to one over A; 0 on padding
    weight: Float[Tensor, "B A"]  # the share of each latent user in the account; sums to one over A


@dataclass(frozen=True)
class Origin:
    """Validation queries from one moment, and all events known at that moment."""

    known: Training | None  # none: the training events
    queries: Callable[[], Iterator[LabelledBatch]]


class Model(nn.Module):
    """A trained model or a simple baseline."""

    config: Any
    encodes_all_accounts: ClassVar[bool] = False  # whether `encode` costs more the more accounts training has
    scores_unseen_items: ClassVar[bool] = False  # whether scores of items without training events are meaningful

    def warm_start_tensors(self) -> dict[str, str]:
        """The saved tensors that a warm start on newer data treats specially, by name.

        `accounts` or `items`: rows are remapped by id. `whole`: a buffer that is copied. All other parameters are
        copied, and all other buffers, such as a graph, are those of the newer data.
        """
        return {}

    @property
    def cuda_graph_safe(self) -> bool:
        """Whether a training step can be captured as a CUDA graph: fixed shapes, no synchronisation with the host."""
        return False

    @property
    def captured_length(self) -> int:
        """The longest training log, in events, whose step can be captured."""
        return LONGEST_CAPTURED

    @property
    def has_latent_users(self) -> bool:
        """Whether `latent_users` can be called."""
        return False

    @property
    def stored_numbers(self) -> int:
        """How many counted numbers the model stores besides its parameters; padding of tables does not count."""
        return 0

    def start_epoch(self, epoch: int) -> None:
        """Refresh what is computed once an epoch."""

    @abstractmethod
    def encode(self) -> Any:
        """Compute everything that does not depend on the batch: once a training step, once an evaluation."""

    def losses(self, encoded: Any, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """The terms of the loss by name, which the training loop adds; a simple baseline has none."""
        return {}

    @abstractmethod
    def scores(self, encoded: Any, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """A score for each item of the domain."""

    def fold_in_scores(self, encoded: Any, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """Scores from the given history alone, for models that otherwise use the account's training events."""
        return self.scores(encoded, batch, domain)

    def latent_users(self, encoded: Any, batch: Batch) -> LatentUsers:
        """The latent users of a history, for models that have them."""
        raise SettingError(NO_LATENT_USERS)

    def refresh(self, known: Training) -> bool:
        """Recount the model's statistics on all events known at query time; return whether the model has such.

        Only protocols with such events call it. Learned weights do not change.
        """
        return False

    def tensors_for(self, known: Training, place: Longs) -> dict[str, Tensor] | None:
        """The saved tensors for a newer catalogue, whose events `refresh` can then count; None without counts.

        Args:
            known: all events of the newer log.
            place: the present number of each item of that catalogue; -1 for a new item.
        """
        return None

    def calibrate(self, validation: Callable[[], Iterator[LabelledBatch]]) -> None:
        """Select on validation events the values that training does not learn."""

    @property
    def is_finished(self) -> bool:
        """Whether `finish` has nothing left to do."""
        return True

    def finish(self, origins: Callable[[], Iterator[Origin]]) -> None:
        """Fit on validation queries what is fitted once, when training has ended."""

    def fitted(self) -> dict[str, float]:
        """The values that `calibrate` and `finish` selected, for reports."""
        return {}
