"""A comparison that was stopped goes on, model by model, and ends as one that was not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightgc2n.cli.printing import print_results
from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.errors import DataError, ScoreError
from lightgc2n.experiments import compare as comparing
from lightgc2n.experiments.compare import compare
from lightgc2n.experiments.comparison_tables import (
    comparison_markdown,
    comparison_notes,
    comparison_tables,
    cost_cells,
)
from lightgc2n.experiments.table import BUDGET_NOTE
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.loop import Steps, TrainingConfig
from lightgc2n.training.runs import RunPlan, plan_of
from tests.cli.test_commands import Done, run
from tests.worlds import dataset_of

MODELS = "recency,lightgc2n-wo-a,markov"


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "data"
    generate(HouseholdConfig(accounts=60), seed=3, out=folder)
    return folder


def compared(data: Path, out: Path, *more: object) -> Done:
    return run("compare", data, "--models", MODELS, "--set", "training.epochs=3", "--out", out, "--json", *more)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("whole") / "out"
    done = compared(data, out)
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


def same(result: dict[str, Any]) -> dict[str, Any]:
    """The result without what depends on the hour."""
    times = ("seconds", "training_seconds", "peak_memory_mb")
    models = {
        name: {key: value for key, value in facts.items() if key not in times}
        for name, facts in result["models"].items()
    }
    return result | {"models": models}


class _StopError(Exception):
    pass


def stop_in_step(wanted: int, patch: pytest.MonkeyPatch) -> None:
    """Training breaks off in this step."""
    steps, real = [0], Steps._step

    def step(*given: Any) -> Any:
        steps[0] += 1
        if steps[0] == wanted:
            raise _StopError
        return real(*given)

    patch.setattr(Steps, "_step", step)


def test_what_a_comparison_leaves_behind(whole: tuple[Path, dict[str, Any]]) -> None:
    out, result = whole
    assert sorted(path.name for path in out.iterdir()) == ["ranks", "results.csv", "results.json", "results.md", "runs"]
    assert sorted(path.stem for path in (out / "ranks").iterdir()) == ["lightgc2n-wo-a", "markov", "owner", "recency"]
    assert plan_of(out / "runs" / "lightgc2n-wo-a").training.epochs == 3
    assert not out.with_name("out.partial").exists()
    assert json.loads((out / "results.json").read_text()) == result
    assert result["left_out"] == {}


@pytest.mark.parametrize("step", [1, 2, 3])
def test_an_interrupted_comparison_resumes(
    data: Path, tmp_path: Path, whole: tuple[Path, dict[str, Any]], step: int
) -> None:
    out, partial = tmp_path / "out", tmp_path / "out.partial"
    with pytest.MonkeyPatch.context() as patch:
        stop_in_step(step, patch)
        with pytest.raises(_StopError):
            compared(data, out)
    assert not out.exists()
    assert [path.stem for path in (partial / "finished").iterdir()] == ["recency"]
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            comparing,
            "ranked",
            lambda plan, *more, real=comparing.ranked: asked.append(plan.model) or real(plan, *more),
        )
        done = compared(data, out)
    assert done.returncode == 0, done.stderr
    assert asked == ["lightgc2n-wo-a", "markov"]  # recency was finished
    assert same(json.loads(done.stdout)) == same(whole[1])
    for name in MODELS.split(","):
        first, second = (np.load(folder / "ranks" / f"{name}.npy", allow_pickle=False) for folder in (out, whole[0]))
        assert np.array_equal(first, second)
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in whole[0].iterdir())
    assert not partial.exists()


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (["--set", "lightgc2n-wo-a.dropout=0.5"], "lightgc2n-wo-a of another comparison: settings differs"),
        (["--set", "training.patience=3"], "lightgc2n-wo-a of another comparison: training differs"),
        (["--protocol", "cold-accounts"], "recency of another comparison: split differs"),
        (["--exclude-seen"], "recency of another comparison: exclude_seen differs"),
        (["--models", "recency,markov"], "lightgc2n-wo-a of another comparison: it is not one of --models now"),
    ],
)
def test_another_comparison_is_refused_unless_forced(other: list[str], reason: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        stop_in_step(2, patch)
        with pytest.raises(_StopError):
            compared(data, out)
    refused = compared(data, out, *other)
    assert (refused.returncode, reason in refused.stderr) == (2, True), refused.stderr
    forced, fresh = compared(data, out, *other, "--force"), compared(data, tmp_path / "fresh", *other)
    assert same(json.loads(forced.stdout)) == same(json.loads(fresh.stdout))
    kept = {path.relative_to(out) for path in out.rglob("*")}
    assert kept == {path.relative_to(tmp_path / "fresh") for path in (tmp_path / "fresh").rglob("*")}


SHORT = dataset_of([("a", "p q"), ("b", "q p"), ("c", "p p")])


def test_models_that_do_not_fit_are_left_out_with_a_reason() -> None:
    """Two events make a test target and nothing to validate on."""
    split = split_dataset(SHORT, SplitConfig())
    models = ["recency", "lightgc2n", "lightgc2n-wo-a"]
    result = compare(SHORT, split, models, optional=models).result
    assert list(result["models"]) == ["recency"]
    assert list(result["left_out"]) == ["lightgc2n", "lightgc2n-wo-a"]
    assert "lightgc2n: no training target" in result["left_out"]["lightgc2n"]
    assert "left out: lightgc2n: no training target" in "\n".join(comparison_notes(result))
    assert "left out: lightgc2n-wo-a: no training target" in comparison_markdown(result)
    with pytest.raises(DataError, match="no training target"):
        compare(SHORT, split, models, optional=["lightgc2n"])
    with pytest.raises(DataError, match="no model is left"):
        compare(SHORT, split, models[1:], optional=models)


def test_a_model_that_cannot_be_trained_is_left_out(data: Path) -> None:
    dataset = load_dataset(data)
    split = split_dataset(dataset, SplitConfig())
    wild = RunPlan(data, "lightgc2n-wo-a", training=TrainingConfig(epochs=2, learning_rate=1e30))
    models, plans = ["recency", "lightgc2n-wo-a"], {"lightgc2n-wo-a": wild}
    result = compare(dataset, split, models, plans=plans, optional=models).result
    assert (list(result["models"]), "nan" in result["left_out"]["lightgc2n-wo-a"]) == (["recency"], True)
    with pytest.raises(ScoreError, match="nan"):
        compare(dataset, split, models, plans=plans)


def test_every_model_gets_its_own_file(data: Path, tmp_path: Path) -> None:
    (tmp_path / "lightgc2n-wo-a.toml").write_text("[lightgc2n-wo-a]\ndropout = 0.3\n[training]\nepochs = 1\n")
    (tmp_path / "lightgc2n-wo-c.toml").write_text("[training]\nepochs = 2\n")
    (tmp_path / "markov.toml").write_text("[markov]\nreach = 2\n")
    words = [
        "compare",
        data,
        "--models",
        "recency,markov,lightgc2n-wo-a,lightgc2n-wo-c",
        "--config",
        tmp_path,
        "--json",
    ]
    actual = json.loads(run(*words).stdout)["models"]
    assert (actual["lightgc2n-wo-a"]["epochs"], actual["lightgc2n-wo-c"]["epochs"]) == (1, 2)
    assert actual["lightgc2n-wo-a"]["settings"]["dropout"] == 0.3
    assert actual["lightgc2n-wo-c"]["settings"]["dropout"] == 0.1
    assert actual["markov"]["settings"]["reach"] == 2
    beaten = json.loads(run(*words, "--set", "training.epochs=3", "--set", "markov.reach=4").stdout)["models"]
    assert (beaten["lightgc2n-wo-a"]["epochs"], beaten["lightgc2n-wo-c"]["epochs"]) == (3, 3)
    assert beaten["markov"]["settings"]["reach"] == 4


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("lightgc2.toml", "", "unknown model 'lightgc2'. Did you mean 'lightgc2n'?"),
        ("lightgc2n.toml", "[markov]\nreach = 2\n", "unknown table 'markov'"),
        ("markov.toml", "[markov]\nraech = 2\n", "Did you mean 'reach'?"),
        ("notes.txt", "", "holds no MODEL.toml"),
    ],
)
def test_a_wrong_folder_of_settings_is_refused(name: str, text: str, message: str, data: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    done = run("compare", data, "--models", "markov,lightgc2n", "--config", tmp_path)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def texts(facts: dict[str, Any]) -> list[str]:
    return [cell.text for cell in cost_cells(facts)]


def test_cost_by_hand() -> None:
    simple = {"parameters": 0, "stored_numbers": 1200, "seconds": 1.26, "peak_memory_mb": 301.4}
    assert texts(simple) == ["0", "1,200", "-", "-", "-", "-", "1.3", "301"]
    trained = simple | {"parameters": 5, "epochs": 8, "best_epoch": 4, "training_seconds": 20.0, "ended_by": "budget"}
    assert texts(trained) == ["5", "-", "8", "5", "budget ‡", "2.50", "1.3", "301"]
    assert texts(trained | {"ended_by": "patience"})[4] == "patience"


def test_only_a_budget_has_a_footnote(whole: tuple[Path, dict[str, Any]]) -> None:
    result = whole[1]
    assert BUDGET_NOTE in comparison_markdown(result)
    result = json.loads(json.dumps(result))
    result["models"]["lightgc2n-wo-a"]["ended_by"] = "patience"
    assert BUDGET_NOTE not in comparison_markdown(result)
    assert BUDGET_NOTE not in list(comparison_notes(result))


def test_a_long_table_fits_a_page(
    whole: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty models, each on one line of each of three tables."""
    monkeypatch.delenv("COLUMNS", raising=False)  # workers of xdist set it
    result = json.loads(json.dumps(whole[1]))
    facts = result["models"]["lightgc2n-wo-a"] | {
        "parameters": 123_456_789,
        "seconds": 12345.6,
        "peak_memory_mb": 98765,
    }
    result["models"] |= {f"lightgc2n-wo-{number:02}": facts for number in range(27)}
    print_results(comparison_tables(result))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 130
    for name in result["models"]:
        assert sum(line.startswith(f"│ {name} ") for line in lines) == 3


def test_plans_hold_what_differs_from_the_defaults(data: Path) -> None:
    dataset = load_dataset(data)
    split = split_dataset(dataset, SplitConfig())
    plan = RunPlan(data, "lightgc2n-wo-a", settings={"layers": 1}, training=TrainingConfig(epochs=1))
    actual = compare(dataset, split, ["markov", "lightgc2n-wo-a"], plans={"lightgc2n-wo-a": plan}).result["models"]
    assert (actual["lightgc2n-wo-a"]["settings"]["layers"], actual["lightgc2n-wo-a"]["epochs"]) == (1, 1)
