"""A command loads, hashes and splits its dataset once, however many models it trains on it."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lightgc2n.experiments.plan_runner
import lightgc2n.experiments.tuning
import lightgc2n.export.write_bundle  # what commands import late must be there to be patched
from lightgc2n.data import dataset, splits
from lightgc2n.synthetic.households import HouseholdConfig, generate
from tests.cli.test_commands import run

OPENING = {"load_dataset": dataset, "verify_dataset": dataset, "split_dataset": splits}
MODEL = ["--model", "lightgc2n-wo-a"]
PLAN = """
data = "homes"
model = ["recency", "markov"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset, a run on it, and a plan of two simple baselines."""
    folder = tmp_path_factory.mktemp("once")
    generate(HouseholdConfig(accounts=40), seed=5, out=folder / "homes")
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    done = run("train", folder / "homes", *MODEL, "--epochs", 1, "--device", "cpu", "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each function that opens data is called, by any module."""
    counts: Counter[str] = Counter()

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def spy(*given: Any, **more: Any) -> Any:
            counts[name] += 1
            return real(*given, **more)

        return spy

    for name, home in OPENING.items():
        real = getattr(home, name)
        spy = counted(name, real)
        for module in [module for key, module in sys.modules.items() if key.startswith("lightgc2n")]:
            if getattr(module, name, None) is real:
                monkeypatch.setattr(module, name, spy)
    return counts


@pytest.mark.parametrize(
    "words",
    [
        ["train", "homes", *MODEL, "--epochs", "1", "--out", "new-run", "--device", "cpu"],
        ["train", "--plan", "plan.toml", "--out", "planned", "--device", "cpu"],
        ["evaluate", "run", "--device", "cpu"],
        ["compare", "homes", "--models", "recency,markov,lightgc2n-wo-a", "--set", "training.epochs=1"],
        ["tune", "homes", *MODEL, "--trials", "3", "--epochs", "3", "--out", "search", "--device", "cpu"],
        ["export", "run", "--out", "bundle"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_command_opens_its_data_once(
    words: list[str], folder: Path, opened: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert opened == dict.fromkeys(OPENING, 1)


def test_a_subprocess_opens_the_data_of_its_runs_once(folder: Path, opened: Counter[str], tmp_path: Path) -> None:
    plan = folder / "trained.toml"
    plan.write_text('data = "homes"\nmodel = "lightgc2n-wo-a"\nseed = [0, 1]\ntraining.epochs = 1\n', encoding="utf-8")
    names = [f"homes-lightgc2n-wo-a-seed{seed}" for seed in (0, 1)]
    code = lightgc2n.experiments.plan_runner.train_several(plan, tmp_path, names, "cpu", 1, float("inf"))
    assert code == 0
    assert all((tmp_path / name / "results.json").is_file() for name in names)
    assert opened == dict.fromkeys(OPENING, 1)
