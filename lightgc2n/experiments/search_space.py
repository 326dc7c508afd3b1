"""The search space of a model, and the samplers that propose settings from it.

SPACES has one row per setting name, applied to every model that has a setting of this name. A row `model.setting` or
`model.training.setting` overrides the row without the model; None excludes the setting from the search.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_type_hints

import numpy as np

from lightgc2n import zoo
from lightgc2n.errors import MissingExtraError
from lightgc2n.training.loop import TrainingConfig


@dataclass(frozen=True)
class Span:
    """A number between two bounds, drawn uniformly or log-uniformly and rounded to a few digits."""

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
    """One of several values."""

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
        allowed = tuple(value for value in self.values if low <= value <= high)
        return Choice(allowed) if allowed else None


Range = Span | Choice
SAMPLERS = ("random", "optuna")
Settings = dict[str, Any]
OPTUNA_STARTS_AFTER = 4  # random trials; optuna's default of 10 would use up a short search
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
    "hrnn.feed": Choice(("state", "split")),
    "nais.pretraining": Choice((0, 2, 5)),
    "neumf.pretraining": Choice((0, 2, 5)),
    "tgsrec.training.learning_rate": Span(1e-4, 2e-3, log=True),  # at higher rates all nodes become one
    "tgsrec.loss": Choice(("bpr", "softmax")),
    "tgsrec.score": Choice(("mlp", "dot")),
    "tgsrec.neighbours": Choice((10, 20)),
    "nais.smoothing": Span(0.2, 1.0),  # other models use this name for other settings
    # These two have no layers: they share the config class of models that do.
    **dict.fromkeys(("gmf.layers", "gmf.dropout", "gmf-ce.layers", "gmf-ce.dropout"), None),
}


def space_of(model: str, fixed: Iterable[str] = ()) -> dict[str, Range]:
    """Return the searched settings of a model, as `table.name`, each within the bounds of its setting.

    Args:
        fixed: settings, as `table.name`, that are not searched.
    """
    tables: dict[str, type[Any]] = {"training": TrainingConfig, model: zoo.entry_of(model).settings}
    space = {}
    for table, settings in tables.items():
        types = get_type_hints(settings)
        for field in dataclasses.fields(settings):
            common = SPACES.get(field.name) if table == model else None
            space_range = SPACES.get(f"{table}.{field.name}", common)
            if table == "training":
                space_range = SPACES.get(f"{model}.training.{field.name}", space_range)
            # A setting with the same name but another type is unrelated.
            if space_range is not None and space_range.kind is types[field.name]:
                space[f"{table}.{field.name}"] = (
                    space_range if space_range.kind is str else space_range.within(*_bounds(field))
                )
    return {
        name: space_range for name, space_range in space.items() if space_range is not None and name not in set(fixed)
    }


def _bounds(field: "dataclasses.Field[Any]") -> tuple[float, float]:
    low, high = field.metadata.get("at_least"), field.metadata.get("at_most")
    return -np.inf if low is None else low, np.inf if high is None else high


def propose(
    sampler: str, space: Mapping[str, Range], number: int, seed: int, results: Sequence[tuple[Settings, float]]
) -> Settings:
    """Return the settings of trial `number`, as `table.name`; deterministic in the arguments.

    Args:
        results: settings and scores of earlier trials; the random sampler ignores them.
    """
    if sampler == "optuna":
        return _by_optuna(space, number, seed, results)
    random = np.random.default_rng([seed, number])
    return {name: space_range.draw(random) for name, space_range in space.items()}


def learns_from_trials(sampler: str) -> bool:
    """Whether a trial must finish its first rung before the next one is proposed."""
    return sampler == "optuna"


def _by_optuna(
    space: Mapping[str, Range], number: int, seed: int, results: Sequence[tuple[Settings, float]]
) -> Settings:
    try:
        import optuna
    except ModuleNotFoundError:
        raise MissingExtraError("optuna", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    wanted = {name: _distribution(space_range) for name, space_range in space.items()}
    sampler = optuna.samplers.TPESampler(seed=seed + number, n_startup_trials=OPTUNA_STARTS_AFTER)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for settings, value in results:
        # The defaults may lie outside the search space, which optuna rejects.
        if all(space_range.holds(settings[name]) for name, space_range in space.items()):
            study.add_trial(optuna.trial.create_trial(params=settings, distributions=wanted, value=value))
    proposed = study.ask(wanted).params
    return {name: space_range.rounded(proposed[name]) for name, space_range in space.items()}


def _distribution(space_range: Range) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if isinstance(space_range, Choice):
        return CategoricalDistribution(space_range.values)
    return FloatDistribution(space_range.low, space_range.high, log=space_range.log)
