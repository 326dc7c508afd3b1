"""Train and test the run that the run.json of a folder describes: the work of one task on a cluster.

`python -m lightgc2n.experiments.one_run RUN train|test DEVICE AT_ONCE SECONDS`; a runner on a cluster starts this.
"""

import sys
from dataclasses import replace
from pathlib import Path

from lightgc2n import zoo
from lightgc2n.experiments.save_results import read_results, save_baseline, save_results
from lightgc2n.experiments.subprocesses import as_child
from lightgc2n.training.run import open_data, train_run
from lightgc2n.training.runs import plan_of, read_run

TRAIN, TEST = "train", "test"


def train_one_run(folder: Path, until: str, device: str, at_once: int, seconds: float) -> None:
    """Train a run, or resume it, within the time budget.

    Args:
        until: `train`, or `test` to test it as well when its training has ended.
    """
    plan = replace(plan_of(folder), label=str(read_run(folder)["label"]))
    data = open_data(plan)
    if zoo.entry_of(plan.model).is_simple:
        save_baseline(plan, folder, device, data)
        return
    progress = train_run(plan, folder, device, seconds, data=data)
    if until == TEST and progress.ended_by and read_results(folder) is None:
        save_results(folder, device, at_once, data)


if __name__ == "__main__":
    folder, until, device, at_once, seconds = sys.argv[1:]
    as_child(lambda: train_one_run(Path(folder), until, device, int(at_once), float(seconds)))
