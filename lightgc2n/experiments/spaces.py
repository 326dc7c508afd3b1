"""What a search may change: one row a setting, applied to whatever settings a model has.

A new model needs nothing here as long as its settings bear the common names. A row `model.setting` beats the row
`setting` for that model alone; with None that setting is not searched.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_type_hints

import numpy as np

from lightgc2n import zoo
from lightgc2n.training.steps import TrainingConfig


@dataclass(frozen=True)
class Span:
    """A number between two bounds, drawn evenly or by its order of magnitude, with as many digits as one would type."""

    low: float
    high: float
    log: bool = False
    kind: ClassVar[type[Any]] = float

    def draw(self, random: np.random.Generator) -> float:
        if self.log:
            return self.rounded(float(np.exp(random.uniform(np.log(self.low), np.log(self.high)))))
        return self.rounded(float(random.uniform(self.low, self.high)))

    def rounded(self, value: float) -> float:
        short = float(f"{value:.2g}") if self.log else round(value, 2)
        return min(max(short, self.low), self.high)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def within(self, low: float, high: float) -> "Span | None":
        inner = replace(self, low=max(self.low, low), high=min(self.high, high))
        return inner if inner.low <= inner.high else None


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Any, ...]

    @property
    def kind(self) -> type[Any]:
        return type(self.values[0])

    def draw(self, random: np.random.Generator) -> Any:
        return self.values[int(random.integers(len(self.values)))]

    def rounded(self, value: Any) -> Any:
        return value

    def holds(self, value: Any) -> bool:
        return value in self.values

    def within(self, low: float, high: float) -> "Choice | None":
        kept = tuple(value for value in self.values if low <= value <= high)
        return Choice(kept) if kept else None


Range = Span | Choice
WIDTHS = Choice((16, 32, 64, 128))
SPACES: Mapping[str, Range | None] = {
    "training.learning_rate": Span(3e-4, 2e-2, log=True),
    "training.weight_decay": Choice((0.0, 1e-6, 1e-5, 1e-4)),
    "training.batch_size": Choice((64, 128, 256, 512, 1024)),
    "width": WIDTHS,
    "embedding_width": WIDTHS,
    "capsule_width": WIDTHS,
    "attention_width": WIDTHS,
    "layers": Choice((1, 2, 3)),
    "blocks": Choice((1, 2, 3)),
    "heads": Choice((1, 2, 4)),
    "latent_users": Choice((1, 2, 3, 4, 5)),
    "members": Choice((1, 2, 3, 4, 5)),
    "interests": Choice((2, 4, 6, 8)),
    "views": Choice((1, 2, 4, 8)),
    "max_length": Choice((20, 50, 100, 200)),
    **dict.fromkeys(("dropout", "input_dropout", "state_dropout", "account_dropout"), Span(0.0, 0.5)),
    **dict.fromkeys(("user_dropout", "session_dropout", "start_dropout"), Span(0.0, 0.5)),
    "tied": Choice((False, True)),
    "contrast_weight": Span(0.0, 1.0),
    "penalty": Span(1e-6, 1e-2, log=True),
    "gru4rec.embeddings": Choice(("shared", "separate")),
    "nais.smoothing": Span(0.2, 1.0),  # elsewhere the word means other things
    # These two have no layers: the settings are those of models that share their file.
    **dict.fromkeys(("gmf.layers", "gmf.dropout", "gmf-ce.layers", "gmf-ce.dropout"), None),
}


def space_of(model: str, fixed: Iterable[str] = ()) -> dict[str, Range]:
    """The settings of a model that are searched, as `table.name`, each within the bounds its setting has.

    Args:
        fixed: settings, as `table.name`, that somebody has decided already.
    """
    tables: dict[str, type[Any]] = {"training": TrainingConfig, model: zoo.entry_of(model).settings}
    found = {}
    for table, settings in tables.items():
        types = get_type_hints(settings)
        for field in dataclasses.fields(settings):
            common = SPACES.get(field.name) if table == model else None
            drawn = SPACES.get(f"{table}.{field.name}", common)
            # A setting of the same name but another type is another thing.
            if drawn is not None and drawn.kind is types[field.name]:
                found[f"{table}.{field.name}"] = drawn if drawn.kind is str else drawn.within(*_bounds(field))
    return {name: drawn for name, drawn in found.items() if drawn is not None and name not in set(fixed)}


def _bounds(field: "dataclasses.Field[Any]") -> tuple[float, float]:
    low, high = field.metadata.get("at_least"), field.metadata.get("at_most")
    return -np.inf if low is None else low, np.inf if high is None else high
