"""One small town of households, runs on it, and their bundles; each is made once for all tests of a process."""

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from lightgc2n.data.splits import SplitConfig
from lightgc2n.export.write_bundle import ExportOptions, export_run
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.refresh_run import refresh_run
from lightgc2n.training.run import train_run
from lightgc2n.training.runs import RunPlan

EXPORTED = ("lightgc2n", "lightgc2n-plus", "sasrec")
COUNTED = ("popularity", "trending", "recency", "markov", "sequential-rules", "markov-recency", "item-knn")
BY_TIME = "lightgc2n-plus@time"  # split by time: its counts are of newer events than those it was trained on
REFRESHED = "lightgc2n-plus@refreshed"  # the same, with the counts of all events
SETTINGS = {"sasrec": {"width": 16, "max_length": 12}, "lightgc2n-plus": {"width": 16, "max_length": 30}}


@cache
def _place() -> Path:
    folder = Path(mkdtemp(prefix="lightgc2n-town-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def data() -> Path:
    folder = _place() / "data"
    generate(HouseholdConfig(accounts=60), seed=3, out=folder)
    return folder


@cache
def run_of(model: str) -> Path:
    """A short training; histories are longer than what sasrec and plus read. "@time" splits by time."""
    folder = _place() / f"run-{model}"
    if model == REFRESHED:
        refresh_run(run_of(BY_TIME), data(), folder)
        return folder
    name, _, protocol = model.partition("@")
    training, split = (
        TrainingConfig(epochs=2, batch_size=16, learning_rate=0.01),
        SplitConfig(protocol=protocol or "last"),
    )
    train_run(RunPlan(data(), name, split=split, settings=SETTINGS.get(name, {}), training=training), folder)
    return folder


def bundle_of(model: str, int8: bool = False, histories: bool = True) -> Path:
    return _bundle(model, int8, histories)


@cache
def _bundle(model: str, int8: bool, histories: bool) -> Path:
    folder = _place() / f"bundle-{model}-{int8}-{histories}"
    export_run(run_of(model), folder, ExportOptions(int8=int8, histories=histories))
    return folder
