"""The base class of simple baselines: tables counted from the training events, and popularity to break ties.

Shapes: B batch, M items of the catalogue.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lightgc2n.data.batches import Batch
from lightgc2n.data.dataset import Domain, Longs
from lightgc2n.data.splits import Training
from lightgc2n.layers.sparse import SparseRows
from lightgc2n.models.contract import Model

# Small enough to order only ties of the baseline itself, large enough to be exact in float64.
POPULARITY_WEIGHT = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSettings:
    """The settings of a baseline without any."""


class SimpleBaseline(Model):
    """A model without gradients. A subclass counts its tables in `count` and scores in `fill`."""

    settings: ClassVar[type[Any]] = NoSettings
    fitted_tensors: ClassVar[tuple[str, ...]] = ()  # selected on validation events; a newer count keeps them
    popularity: Float[Tensor, "M"]

    def __init__(self, config: Any, tables: dict[str, Tensor]) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("popularity", tables["popularity"])
        for name in sorted({name.partition(".")[0] for name in tables if "." in name}):
            parts = (tables[f"{name}.{part}"] for part in ("offsets", "columns", "values"))
            self.add_module(name, SparseRows(*parts))
        for name in sorted(name for name in tables if "." not in name and name != "popularity"):
            self.register_buffer(name, tables[name])

    @classmethod
    def build(cls, config: Any, train: Training) -> "SimpleBaseline":
        """Count the tables from the training events."""
        popularity = torch.from_numpy(train.popularity / (train.popularity.max(initial=0) + 1.0))
        return cls(config, {"popularity": popularity, **cls.count(config, train)})

    @classmethod
    def count(cls, config: Any, train: Training) -> dict[str, Tensor]:
        """The tables of this baseline by name; a sparse one as its three parts, `name.offsets` and so on."""
        return {}

    def tensors_for(self, known: Training, place: Longs) -> dict[str, Tensor]:
        own, newer = self.state_dict(), type(self).build(self.config, known).state_dict()
        return newer | {name: own[name] for name in self.fitted_tensors}

    def encode(self) -> None:
        """Nothing to precompute."""

    @torch.no_grad()
    def scores(self, encoded: None, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """A score for each item of the domain; ties are ordered by popularity."""
        scores = (self.popularity * POPULARITY_WEIGHT).expand(len(batch.length), -1).clone()
        self.fill(scores, batch)
        return scores[:, domain.start : domain.stop]

    def fill(self, scores: Float[Tensor, "B M"], batch: Batch) -> None:
        """Add the scores of this baseline, in place."""


def sparse_tables(name: str, table: SparseRows) -> dict[str, Tensor]:
    """The parts of a sparse table under the names that `SimpleBaseline` expects."""
    return {f"{name}.offsets": table.offsets, f"{name}.columns": table.columns, f"{name}.values": table.values}
