"""Who really acted is known to evaluation alone."""

import dataclasses
from pathlib import Path

import numpy as np

from lightgc2n import zoo
from lightgc2n.config import read_settings
from lightgc2n.data.dataset import Dataset, load_dataset
from lightgc2n.data.importing import ImportOptions, import_log
from lightgc2n.data.members import load_members
from lightgc2n.data.splits import Queries, SplitConfig, Training, split_dataset
from lightgc2n.experiments.compare import compare
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.runs import RunPlan


def ranks(folder: Path) -> dict[str, list[float]]:
    dataset = load_dataset(folder)
    split = split_dataset(dataset, SplitConfig())
    plans = {name: RunPlan(folder, name, training=TrainingConfig(epochs=1, batch_size=16)) for name in zoo.ZOO}
    return {name: actual.tolist() for name, actual in compare(dataset, split, list(zoo.ZOO), plans=plans).ranks.items()}


def test_no_model_is_changed_by_the_labels(tmp_path: Path) -> None:
    """The same log with its members, with other members, and without any: every model ranks alike."""
    log = tmp_path / "log.csv"
    generate(read_settings(HouseholdConfig, {"accounts": 60}, "test"), seed=5, out=log)
    header, *rows = log.read_text().splitlines()
    assert header.endswith(",member")
    others = [f"{row.rsplit(',', 1)[0]},somebody-{number % 7}" for number, row in enumerate(rows)]
    nobody = [row.rsplit(",", 1)[0] for row in rows]
    (tmp_path / "others.csv").write_text("\n".join([header, *others]) + "\n")
    (tmp_path / "nobody.csv").write_text("\n".join([header.removesuffix(",member"), *nobody]) + "\n")
    actual = {}
    for name in ("log", "others", "nobody"):
        import_log(tmp_path / f"{name}.csv", tmp_path / name, ImportOptions())
        actual[name] = ranks(tmp_path / name)
    assert actual["log"] == actual["others"] == actual["nobody"]
    known, other = load_members(tmp_path / "log"), load_members(tmp_path / "others")
    assert known is not None
    assert other is not None
    assert not np.array_equal(known.of_event, other.of_event)
    assert load_members(tmp_path / "nobody") is None


def test_nothing_that_a_model_sees_has_a_place_for_labels() -> None:
    for kind in (Dataset, Training, Queries):
        names = {field.name for field in dataclasses.fields(kind)}
        assert not [name for name in names if "member" in name or "label" in name]
