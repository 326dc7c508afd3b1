"""Additions to a copy of the package, each in the files that CONTRIBUTING.md names and in no other, and then used."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BASELINE = '''"""The oldest items of the history first."""

from lightgc2n.baselines.counting import newest_events
from lightgc2n.baselines.simple import SimpleBaseline


class Oldest(SimpleBaseline):
    """The items of the history, the oldest first."""

    def fill(self, scores, batch):
        row, item, age = newest_events(batch)
        scores[row, item] += age
'''
ADD_BASELINE = {
    "lightgc2n/baselines/oldest.py": [("", BASELINE)],
    "lightgc2n/zoo.py": [
        (
            "from lightgc2n.baselines.pi_net.pi_net import",
            "from lightgc2n.baselines.oldest import Oldest\nfrom lightgc2n.baselines.pi_net.pi_net import",
        ),
        ("ZOO: dict[str, Entry] = {\n", 'ZOO: dict[str, Entry] = {\n    "oldest": _simple(Oldest, "tastes"),\n'),
        ("ABOUT = {\n", 'ABOUT = {\n    "oldest": "the items of the history, the oldest first",\n'),
    ],
}
ADD_METRIC = {
    "lightgc2n/metrics/ranking.py": [
        ("\n\nMETRICS: ", "\n\ndef precision(ranks, cutoff):\n    return hit(ranks, cutoff) / cutoff\n\n\nMETRICS: "),
        ('"NDCG": discounted_gain}', '"NDCG": discounted_gain, "PR": precision}'),
    ],
}
DEVICE = '''class TestDevice(Device):
    """A device whose only unit is known."""

    def list_units(self):
        return [("meta", "a test accelerator")]


DEVICES: dict'''
ADD_DEVICE = {
    "lightgc2n/devices.py": [
        ("DEVICES: dict", DEVICE),
        ("for device in (CPU, CUDA)}", 'for device in (CPU, CUDA, TestDevice("meta", tile_rows=7))}'),
    ],
}
ADDITIONS = {"baseline": ADD_BASELINE, "ranking metric": ADD_METRIC, "device": ADD_DEVICE}
USE = """
import json
import polars as pl
from typer.testing import CliRunner
import lightgc2n as lg
from lightgc2n.cli.main import app
from lightgc2n.metrics.ranks import rows_per_tile

logs = {"one": "abcabca", "two": "bcabcab", "three": "cabcabc"}
events = [(account, item) for account, log in logs.items() for item in log]
frame = pl.DataFrame(events, ["account", "item"], orient="row")
compared = lg.compare(lg.Dataset.from_frame(frame), models=["oldest", "recency"], progress=False)
doctor = CliRunner().invoke(app, ["doctor"]).output
listed = CliRunner().invoke(app, ["models"]).output
rows = compared.to_frame("polars").to_dicts()
print(json.dumps({"rows": rows, "doctor": doctor, "models": listed, "tile": rows_per_tile(10, "meta")}))
"""


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a copy of the package with all additions returns."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "lightgc2n", folder / "lightgc2n", ignore=shutil.ignore_patterns("__pycache__", "page"))
    for changes in ADDITIONS.values():
        for name, edits in changes.items():
            path = folder / name
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            for old, new in edits:
                assert not old or text.count(old) == 1, f"{name}: {old}"
                text = text.replace(old, new) if old else new
            path.write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    command = [sys.executable, "-c", USE]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("what", ADDITIONS)
def test_only_the_files_that_contributing_names_are_touched(what: str) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith((f"| a {what} |", f"| an {what} |")))
    named = {name.replace("NAME", "oldest") for name in re.findall(r"`(lightgc2n/[\w/]+\.py)`", row)}
    assert named == set(ADDITIONS[what])


def test_a_new_baseline_is_listed_and_compared(used: Any) -> None:
    # Each log is a ring of three items: the next item is the oldest of the last three, so it is third by recency.
    oldest, recency = used["rows"]
    assert (oldest["model"], recency["model"]) == ("oldest", "recency")
    assert oldest["MRR@5"] == 1
    assert recency["MRR@5"] == pytest.approx(1 / 3)
    assert "the items of the history, the oldest first" in used["models"]


def test_a_new_metric_is_measured(used: Any) -> None:
    assert [row["PR@5"] for row in used["rows"]] == pytest.approx([1 / 5, 1 / 5])


def test_a_new_device_is_listed_and_sets_the_size_of_tiles(used: Any) -> None:
    assert "a test accelerator" in used["doctor"]
    assert used["tile"] == 7
