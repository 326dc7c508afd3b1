"""Results carry their identity: no name of a folder matters, except for runs of earlier versions."""

import json
import shutil
from pathlib import Path

import pytest

from lightgc2n.experiments.plan_runner import train_one
from lightgc2n.experiments.plan_summary import summarise
from lightgc2n.experiments.run_index import read_runs
from lightgc2n.synthetic.households import HouseholdConfig, generate

OLD = Path(__file__).parent / "old_plan"  # three runs as version 0.1 wrote them: no label, no identity
PLAN = """
data = "homes"
domain = "video"
[[run]]
name = "reach-2"
model = "markov"
seed = [0, 7]
markov.reach = 2
"""


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    generate(HouseholdConfig(accounts=40), seed=5, out=folder / "homes")
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    for seed in (0, 7):
        train_one(folder / "plan.toml", folder / "runs", f"homes-video-reach-2-seed{seed}")
    return folder / "runs"


def renamed(runs: Path, to: Path) -> Path:
    """A copy of the runs in folders whose names say nothing."""
    for number, run in enumerate(sorted(path.parent for path in runs.glob("*/run.json"))):
        shutil.copytree(run, to / f"folder {number}")
    return to


def test_a_result_names_its_data_protocol_model_settings_seed_and_commit(planned: Path) -> None:
    run = planned / "homes-video-reach-2-seed7"
    described = json.loads((run / "run.json").read_text())
    identity = json.loads((run / "results.json").read_text())["identity"]
    assert (identity["dataset"], identity["domain"], identity["label"]) == ("homes", "video", "reach-2")
    assert (identity["model"], identity["protocol"], identity["training"]["seed"]) == ("markov", "last", 7)
    assert identity["settings"]["reach"] == 2
    assert identity["checksum"] == described["data"]["checksum"]
    assert identity["commit"] == described["commit"]


def test_runs_in_renamed_folders_are_the_same_runs(planned: Path, tmp_path: Path) -> None:
    (group,) = read_runs(renamed(planned, tmp_path)).groups
    assert (group.first.name, group.label, group.model, group.dataset) == (
        "homes-video-reach-2",
        "reach-2",
        "markov",
        "homes video",
    )
    assert [run.seed for run in group.runs] == [0, 7]
    assert summarise(tmp_path).rows == summarise(planned).rows


def test_an_unfinished_run_is_known_by_its_run_json(planned: Path, tmp_path: Path) -> None:
    for run in renamed(planned, tmp_path).iterdir():
        (run / "results.json").unlink()
    index = read_runs(tmp_path)
    assert index.groups == ()
    assert {(one.run, one.name, one.dataset_folder) for one in index.unfinished} == {
        ("folder 0", "homes-video-reach-2", "homes"),
        ("folder 1", "homes-video-reach-2", "homes"),
    }


def test_results_without_an_identity_take_it_from_run_json(planned: Path, tmp_path: Path) -> None:
    for run in renamed(planned, tmp_path).iterdir():
        results = json.loads((run / "results.json").read_text())
        del results["identity"]
        (run / "results.json").write_text(json.dumps(results))
    assert summarise(tmp_path).rows == summarise(planned).rows


def test_runs_of_an_earlier_version_are_read_with_the_same_numbers() -> None:
    """The numbers are those of the summary that the earlier version wrote."""
    trained, simple = summarise(OLD).rows
    assert (trained["run"], trained["seeds"], trained["parameters"]) == ("homes-video-da-gcn", 2, 56620)
    assert (simple["run"], simple["seeds"], simple["validation MRR@20"]) == ("homes-video-recency", 1, None)
    wanted = {
        "RC@5": (0.10402684563758388, 0.2684563758389262),
        "RC@20": (0.30201342281879195, 0.6174496644295302),
        "MRR@5": (0.038814317673378076, 0.10246085011185682),
        "MRR@20": (0.05733843798573576, 0.13558196953770124),
        "MRR@20 spread": (0.0017889759677114023, 0.0),
        "low": (0.04376982287233744, 0.10810957855576131),
        "high": (0.07367800358958518, 0.16527634244886252),
    }
    for name, values in wanted.items():
        assert (trained[name], simple[name]) == pytest.approx(values, rel=1e-13), name
