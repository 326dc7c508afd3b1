"""The models of a comparison, trained by a runner before they are ranked: each run resumes where it was left."""

import math
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from lightgc2n import zoo
from lightgc2n.errors import TrainingError
from lightgc2n.experiments.comparison_cache import ComparisonCache
from lightgc2n.experiments.one_run import TRAIN
from lightgc2n.experiments.rank_model import Conditions, unfit
from lightgc2n.experiments.subprocesses import Child, Runner, TimeBudget, last_line
from lightgc2n.progress import say
from lightgc2n.training.runs import RunPlan, start_run


def train_elsewhere(
    plans: Mapping[str, RunPlan],
    conditions: Conditions,
    cache: ComparisonCache,
    runner: Runner,
    optional: Collection[str],
) -> None:
    """Train the models that are not finished, each in its run folder of the cache; simple baselines are left out.

    Args:
        optional: models whose failure is reported here; the comparison then tries them itself.
    """
    cache.refuse_others(plans)
    wanted = [name for name in plans if not zoo.entry_of(name).is_simple and not unfit(name, conditions.split)]
    wanted = [name for name in wanted if cache.find(plans[name], conditions) is None]

    def ended(child: Child, code: int) -> None:
        problem = f"{child.name} failed (exit code {code}): {last_line(child.log)}"
        if code and child.name not in optional:
            raise TrainingError(f"{problem}. Rerun the command to resume the other models.")
        say(problem if code else f"{child.name} is trained")

    with tempfile.TemporaryDirectory() as logs:
        for name in wanted:
            start_run(cache.run(name), plans[name], conditions.dataset)
        children = [_child(name, cache.run(name), Path(logs), conditions.device) for name in wanted]
        if children:
            runner(children, 1, TimeBudget(math.inf), ended)


def _child(name: str, run: Path, logs: Path, device: str) -> Child:
    return Child(name, run, logs / f"{name}.txt", "lightgc2n.experiments.one_run", (run, TRAIN, device, 1))
