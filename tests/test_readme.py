"""Every command of the README runs in the order in which it stands there, twice in one folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import ROOT, TESTED

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


@pytest.mark.parametrize("time", ["first", "second"])
def test_all_commands_in_order(time: str, folder: Path) -> None:
    bin_first = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for language, code in TESTED.findall(README):
        shell = ["bash", "-euo", "pipefail", "-c"] if language == "sh" else [sys.executable, "-c"]
        done = subprocess.run(
            [*shell, code],
            cwd=folder,
            env=os.environ | {"PATH": bin_first},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{time} time: {done.stderr}"
        assert done.stdout
        if language == "sh" and "lightgc2n train" in code:
            assert "tops too early" in done.stdout or "topped too early" in done.stdout
            assert "2 people" in done.stdout


def test_every_command_of_the_tour_is_tested() -> None:
    blocks = README.count("```sh\n") + README.count("```python\n")
    untested = [line for line in ("make demo\n", "make test\n") if f"```sh\n{line}```" in README]
    assert blocks == len(TESTED.findall(README)) + len(untested)
