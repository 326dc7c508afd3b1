"""scripts/search_and_table.py: one search budget for all, validation chooses, the better settings are tested."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "search_and_table.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("search_and_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["search_and_table"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_settings_that_hold_the_published_ones_need_no_second_run(script: ModuleType) -> None:
    published = {"gmf": {"width": 16}, "training": {"learning_rate": 0.005}}
    found = {"gmf": {"width": 16, "dropout": 0.1}, "training": {"learning_rate": 0.005}}
    assert script.holds(found, published)
    assert not script.holds({**found, "training": {"learning_rate": 0.01}}, published)
    assert not script.holds(published, found)


def test_every_published_model_is_in_the_list(script: ModuleType) -> None:
    models = [*script.BY_PAPER.split(), *script.OTHERS.split()]
    assert sorted(models) == sorted(path.stem for path in (ROOT / "configs/published-16").glob("*.toml"))


@pytest.mark.slow
def test_a_model_from_its_search_to_its_table(tmp_path: Path, script: ModuleType) -> None:
    log = tmp_path / "E.tsv"
    random = np.random.default_rng(0)
    lines = (f"{n}\t" + " ".join(f"E{item}" for item in random.integers(40, size=9)) for n in range(60))
    log.write_text("\n".join(lines) + "\n")
    data, out = tmp_path / "E", tmp_path / "out"
    subprocess.run([*script.COMMAND, "import", log, "--out", data], check=True, cwd=ROOT, capture_output=True)
    words = [data, "--tested", data, "--out", out, "--models", "gmf", "--trials", "2", "--epochs", "1", "--seeds", "2"]
    command = [sys.executable, SCRIPT, *words, "--device", "cpu", "--processes", "2"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    choice = json.loads((out / "choices/gmf.json").read_text())
    assert choice["chosen"] == max(choice["validation"], key=choice["validation"].get)
    assert (out / "settings/gmf.toml").is_file()
    assert len(list((out / "E/gmf.tgz.work/table1-16").glob("*/results.json"))) == 2
    again = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert again.stdout == f"done: see {out}\n"
