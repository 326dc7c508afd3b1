"""`make demo` and `make clean` leave alone what a user put into demo/ or .venv."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from unittest.mock import MagicMock
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from lightgc2n.data.dataset import ARRAYS
from lightgc2n.recommending.bundle_files import BUNDLE

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of the project that these commands need, in a folder of their own."""
    for name in ("Makefile", "scripts", "lightgc2n/__init__.py", "lightgc2n/errors.py", "lightgc2n/data/__init__.py",
                 "lightgc2n/files"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, tmp_path / name)
    return tmp_path


def call(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=False, timeout=120)


def test_a_demo_folder_of_the_user_is_left_alone(checkout: Path) -> None:
    (checkout / "demo").mkdir()
    (checkout / "demo" / "thesis.txt").write_text("years of work")
    done = call(checkout, "scripts/demo", "--claim")
    assert (done.returncode, "Move them elsewhere" in done.stderr) == (2, True)
    assert call(checkout, "make", "clean").returncode == 0
    assert (checkout / "demo" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("name", ["made-by-make-demo", "service.log"])
def test_a_link_in_the_demo_folder_is_not_written(name: str, checkout: Path) -> None:
    assert call(checkout, "scripts/demo", "--claim").returncode == 0
    (checkout / "thesis.txt").write_text("years of work")
    (checkout / "demo" / name).unlink(missing_ok=True)
    (checkout / "demo" / name).symlink_to(checkout / "thesis.txt")
    done = call(checkout, "scripts/demo", "--claim")
    assert (done.returncode, "is a link, so it is not written" in done.stderr) == (2, True)
    assert (checkout / "thesis.txt").read_text() == "years of work"


def test_clean_removes_what_make_made_and_nothing_else(checkout: Path) -> None:
    assert call(checkout, "scripts/demo", "--claim").returncode == 0
    made = [
        "households.csv",
        "households/manifest.json",
        "households/events.npy",
        "bundle/server/histories.safetensors",
        "compare/runs/lightgc2n/run.json",
        "bundle/server/accounts.txt",
    ]
    mine = ["notes.txt", "bundle/notes.txt", "compare/runs/lightgc2n/.git/HEAD"]
    mine += ["households/titles-by-bert.npy", "bundle/server/tuned.safetensors"]
    for name in (*made, *mine):
        (checkout / "demo" / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / "demo" / name).touch()
    (checkout / ".venv" / "bin").mkdir(parents=True)  # an environment that the user made
    assert call(checkout, "make", "clean").returncode == 0
    left = {path.relative_to(checkout / "demo").as_posix() for path in (checkout / "demo").rglob("*") if path.is_file()}
    assert left == set(mine)
    assert (checkout / ".venv").is_dir()


def test_after_clean_the_experiments_can_be_resumed(checkout: Path) -> None:
    assert call(checkout, "scripts/demo", "--claim").returncode == 0
    (checkout / "demo" / "experiments").mkdir()
    (checkout / "demo" / "experiments" / ".lightgc2n.json").touch()
    assert call(checkout, "make", "clean").returncode == 0
    assert (checkout / "demo" / "experiments" / ".lightgc2n.json").exists()
    assert call(checkout, "scripts/demo", "--claim").returncode == 0  # "demo/ holds files that make demo did not make"


def test_clean_removes_an_environment_that_make_made(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".made-by-make").touch()
    assert call(checkout, "make", "clean").returncode == 0
    assert not (checkout / ".venv").exists()
    assert not (checkout / "demo").exists()


def test_a_folder_of_the_user_does_not_become_an_environment(checkout: Path) -> None:
    """One whose Python is gone, say: make used to set it up anew, and make clean then removed it with all it held."""
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").symlink_to("/nowhere/python3")
    (checkout / ".venv" / "thesis.txt").write_text("years of work")
    for name in ("pyproject.toml", "constraints.txt"):
        (checkout / name).touch()
    done = call(checkout, "make", "setup", "PIP=true")
    assert (done.returncode, "Move it elsewhere" in done.stderr) == (2, True)
    assert call(checkout, "make", "clean").returncode == 0
    assert (checkout / ".venv" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("killed", [False, True])
def test_make_sets_up_an_environment_and_cleans_it(killed: bool, checkout: Path) -> None:
    if killed:  # an earlier make, before the environment was complete
        (checkout / ".venv" / "lib").mkdir(parents=True)
        (checkout / ".venv" / ".made-by-make").touch()
    for name in ("pyproject.toml", "constraints.txt"):
        (checkout / name).touch()
    assert call(checkout, "make", "setup", "PIP=true").returncode == 0
    assert (checkout / ".venv" / "bin" / "python").exists()
    assert call(checkout, "make", "clean").returncode == 0
    assert not (checkout / ".venv").exists()


def test_names_of_the_demo_are_those_of_the_product() -> None:
    """The script runs without numpy, so it has its own lists."""
    spec = importlib.util.spec_from_file_location("clean_demo", ROOT / "scripts" / "clean_demo.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.ARRAYS == ARRAYS
    wanted = {f"bundle/{name}" for name in (BUNDLE.marker, *BUNDLE.files)}
    assert {name for name in script.DEMO.files if name.startswith("bundle/")} == wanted


@pytest.mark.slow
def test_ctrl_c_ends_the_live_demo_and_removes_its_files(tmp_path: Path) -> None:
    binaries = Path(sys.executable).parent
    environment = os.environ | {"TMPDIR": str(tmp_path), "PATH": f"{binaries}:{os.environ['PATH']}"}
    command = [sys.executable, str(ROOT / "scripts" / "demo_live.py"), "--accounts", "80", "--epochs", "1"]
    demo = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    address = next(line for line in demo.stdout if line.startswith("the page:")).split()[2].removesuffix("/#model")
    assert urlopen(f"{address}/healthz").status == 200
    demo.send_signal(signal.SIGINT)
    assert demo.wait(timeout=60) == 130
    demo.stdout.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(URLError):
        urlopen(f"{address}/healthz")


def test_ctrl_c_ends_the_live_demo_while_a_thread_of_it_starts_a_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before, only the thread ended, and the demo did not take note of the signal."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    demo = importlib.import_module("demo_live")
    children, starting, signalled = demo.Children(tmp_path), threading.Event(), threading.Event()

    def slow(*_words: object, **_options: object) -> subprocess.Popen[bytes]:
        starting.set()
        signalled.wait()
        return MagicMock()

    def renew() -> None:
        with suppress(SystemExit):
            children.start("pipeline", "run")

    monkeypatch.setattr(demo.subprocess, "Popen", slow)
    thread = threading.Thread(target=renew)
    thread.start()
    starting.wait()
    try:
        with pytest.raises(SystemExit):
            children.stop(signal.SIGINT, None)
    finally:
        signalled.set()
        thread.join()


def test_ctrl_c_twice_ends_the_live_demo_and_removes_its_files(tmp_path: Path) -> None:
    """The second one comes while the demo waits for its processes; before, it left the folder."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "lightgc2n").write_text("#!/bin/sh\ntrap '' INT TERM\necho begun >&2\nsleep 600 & wait; wait\n")
    (binaries / "lightgc2n").chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    environment = os.environ | {"TMPDIR": str(place), "PATH": f"{binaries}:{os.environ['PATH']}"}
    command = [sys.executable, str(ROOT / "scripts" / "demo_live.py")]
    demo = subprocess.Popen(command, cwd=place, env=environment, stderr=subprocess.PIPE, start_new_session=True)
    try:
        assert demo.stderr is not None
        assert demo.stderr.readline() == b"begun\n"
        demo.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert demo.poll() is None, "it waits for its process, which ignores the signal"
        demo.send_signal(signal.SIGINT)
        assert demo.wait(timeout=20) == 130
        assert list(place.iterdir()) == []
    finally:
        os.killpg(demo.pid, signal.SIGKILL)  # the sleep of the process that was killed
        demo.communicate()
