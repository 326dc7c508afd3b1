"""What the claims read of our runs: one `Measured` a seed, found by dataset, protocol and name of the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lightgc2n.evaluation.metrics import Floats, Longs

HONEST = frozenset({"last", "time", "cold-accounts"})  # protocols in which no test target is seen in training


class Key(NamedTuple):
    """What the seeds of one run share."""

    dataset: str  # "E"; a run on two domains stands under each of them, with that domain's targets
    protocol: str  # "last", "windows", ...
    run: str  # "lightgc2n", "lightgc2n alpha 2", ...

    @property
    def honest(self) -> bool:
        return self.protocol in HONEST


@dataclass(frozen=True, eq=False)
class Measured:
    """One trained model: what its test found and what it cost."""

    model: str  # its name in the zoo
    seed: int
    metrics: Mapping[str, float]  # RC@5, MRR@20, ... as shares of 1
    rank: Floats  # of every test target, from 1
    owner: Longs  # the account of every test target
    parameters: int  # in all
    epochs: int
    training_seconds: float
    device: str  # "cpu", or the name of the GPU
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the model, all of them: latent_users, layers, ...
    data_share: float = 1.0  # of the training data
    domains: int = 1  # served by these parameters
    peak_memory_mb: float = 0.0
    quickest_epoch: float | None = None  # seconds; the mean where nothing is said
    most_epochs: int | None = None  # that it might have trained; none where that is not known
    at_once: int = 1  # runs that shared the machine with it, itself counted

    @property
    def seconds_an_epoch(self) -> float:
        mean = self.training_seconds / max(1, self.epochs)
        return mean if self.quickest_epoch is None else self.quickest_epoch

    @property
    def seconds_a_domain(self) -> float:
        """Of an epoch, for each domain that it trains."""
        return self.seconds_an_epoch / self.domains

    @property
    def parameters_a_domain(self) -> float:
        return self.parameters / self.domains


@dataclass(frozen=True)
class Agreement:
    """How far the latent users of a model are the people who are known to share accounts: ARI over these accounts."""

    dataset: str
    value: float
    low: float
    high: float


Results = Mapping[Key, Sequence[Measured]]  # of one experiment
