"""Who proposes the settings of the next trial: chance, or optuna where it is installed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lightgc2n.errors import MissingExtraError
from lightgc2n.experiments.spaces import Choice, Range

SAMPLERS = ("random", "optuna")
Settings = dict[str, Any]
OPTUNA_STARTS_AFTER = 4  # trials; its own default, 10, would leave nothing of a short search


def propose(
    sampler: str, space: Mapping[str, Range], number: int, seed: int, told: Sequence[tuple[Settings, float]]
) -> Settings:
    """The settings of trial `number`, as `table.name`; they follow from the arguments alone.

    Args:
        told: settings of earlier trials and what they reached; chance does not ask.
    """
    if sampler == "optuna":
        return _by_optuna(space, number, seed, told)
    random = np.random.default_rng([seed, number])
    return {name: drawn.draw(random) for name, drawn in space.items()}


def learns_from_trials(sampler: str) -> bool:
    """Whether a trial must end its first rung before the next one can be proposed."""
    return sampler == "optuna"


def _by_optuna(space: Mapping[str, Range], number: int, seed: int, told: Sequence[tuple[Settings, float]]) -> Settings:
    try:
        import optuna
    except ModuleNotFoundError:
        raise MissingExtraError("optuna", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    wanted = {name: _distribution(drawn) for name, drawn in space.items()}
    sampler = optuna.samplers.TPESampler(seed=seed + number, n_startup_trials=OPTUNA_STARTS_AFTER)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for settings, value in told:
        # The defaults may stand outside what is searched; optuna could not place them.
        if all(drawn.holds(settings[name]) for name, drawn in space.items()):
            study.add_trial(optuna.trial.create_trial(params=settings, distributions=wanted, value=value))
    asked = study.ask(wanted).params
    return {name: drawn.rounded(asked[name]) for name, drawn in space.items()}


def _distribution(drawn: Range) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if isinstance(drawn, Choice):
        return CategoricalDistribution(drawn.values)
    return FloatDistribution(drawn.low, drawn.high, log=drawn.log)
