"""One comparison from a prepared dataset to its results, in memory or in a folder where it can resume."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lightgc2n.config import read_settings
from lightgc2n.data.leak_audit import warn_of_leaks
from lightgc2n.data.splits import SplitConfig
from lightgc2n.errors import OUT, SettingError, option
from lightgc2n.experiments.compare import COMPARISON, Compared, compare, write_results
from lightgc2n.experiments.comparison_cache import ComparisonCache
from lightgc2n.experiments.rank_model import Conditions
from lightgc2n.experiments.subprocesses import Runner
from lightgc2n.experiments.train_elsewhere import train_elsewhere
from lightgc2n.files.atomic_writes import refuse_existing, resumable_folder
from lightgc2n.progress import say
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import open_data
from lightgc2n.training.runs import RunPlan

Tables = Mapping[str, Mapping[str, Any]]  # settings by table: the model's name, `split` and `training`


def wants_beyond_accuracy(metrics: str) -> bool:
    """Return whether these metrics go beyond accuracy: `accuracy` or `all`."""
    if metrics not in ("accuracy", "all"):
        raise SettingError(f"{option('--metrics', 'metrics=')}: expected accuracy or all, found {metrics!r}.")
    return metrics == "all"


def run_comparison(
    data: Path,
    names: Sequence[str],
    tables: Mapping[str, Tables],
    *,
    domain: str = "",
    split: Mapping[str, Any],
    cutoffs: Sequence[int],
    optional: Collection[str] = (),
    exclude_seen: bool = False,
    device: str = "cpu",
    seed: int = 0,
    out: Path | None = None,
    force: bool = False,
    beyond_accuracy: bool = False,
    examples: int = 0,
    runner: Runner | None = None,
) -> Compared:
    """Train and compare models on one dataset.

    Args:
        tables: of each model its tables of settings.
        split: settings of the split, which all models share.
        optional: models to leave out, with a reason, where they do not fit the data.
        out: the folder for results, ranks and trained runs; finished models are stored in OUT.partial.
        beyond_accuracy: also measure coverage, novelty, diversity and popularity bias of the lists.
        examples: number of example accounts whose lists are returned.
        runner: trains the models elsewhere, which needs `out`; lists are ranked on this machine.
    """
    if runner is not None and out is None:
        raise SettingError(f"a comparison on a cluster needs {OUT}: checkpoints are kept there.")
    if out is not None:
        refuse_existing(out, force)
    config = read_settings(SplitConfig, split, where="split")
    plans = {name: _plan(data, name, domain, config, tables[name], seed) for name in names}
    dataset, divided = open_data(plans[names[0]])
    warn_of_leaks(dataset, divided)
    comparison = partial(
        compare,
        dataset,
        divided,
        names,
        cutoffs=cutoffs,
        plans=plans,
        optional=optional,
        exclude_seen=exclude_seen,
        device=device,
        seed=seed,
        beyond_accuracy=beyond_accuracy,
        examples=examples,
    )
    if out is None:
        return comparison()
    with resumable_folder(out, force, kind=COMPARISON) as folder:
        say(f"finished models are stored in {folder}; interrupted, the comparison resumes")
        cache = ComparisonCache(folder, force)
        if runner is not None:
            conditions = Conditions(dataset, divided, exclude_seen, device)
            train_elsewhere(plans, conditions, cache, runner, optional)
        compared = comparison(cache=cache)
        cache.clear()
        write_results(compared, folder)
    return compared


def _plan(data: Path, name: str, domain: str, split: SplitConfig, tables: Tables, seed: int) -> RunPlan:
    training = read_settings(TrainingConfig, {"seed": seed, **tables["training"]}, where="training")
    return RunPlan(data, name, domain, dict(tables[name]), split, training)
