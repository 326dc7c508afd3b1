"""The command is killed with SIGKILL whenever its journal has another step, and started again until a round is done."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lightgc2n.pipeline.rounds import PipelineFolder
from lightgc2n.recommending.load_bundle import load_bundle
from tests.pipeline.shop import shop

FILE = """
[pipeline]
store = "events.db"
model = "markov"
people = false
"""


def steps_done(folder: Path) -> int:
    try:
        return len(json.loads((folder / "journal.json").read_text())["done"])
    except FileNotFoundError:
        return -1


def run_and_kill(file: Path, folder: Path) -> int:
    """Start the command, kill it as soon as it has done one more step, and return its exit code."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "lightgc2n", "pipeline", "run", str(file)]
    before = steps_done(folder)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if steps_done(folder) > before:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.001)
    return process.wait()


@pytest.mark.slow
def test_a_command_that_is_killed_after_each_step_completes_the_round(tmp_path: Path) -> None:
    shop(tmp_path, 5)
    file, folder = tmp_path / "pipeline.toml", tmp_path / "pipeline"
    file.write_text(FILE)
    codes: list[int] = []
    while not codes or codes[-1] != 0:
        codes.append(run_and_kill(file, folder))
        assert codes[-1] in (0, -signal.SIGKILL)
        assert len(codes) < 20
    assert codes.count(-signal.SIGKILL) >= 3
    history = PipelineFolder(folder).promotions()
    assert [(one["round"], one["kind"]) for one in history] == [(1, "first")]
    assert os.readlink(folder / "live") == "rounds/0001/bundle"
    assert load_bundle(folder / "live").recommend(history=["old-2"], k=1).items[0].item_id == "old-3"
