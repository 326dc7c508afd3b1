"""Commands killed at random moments while others run: no foreign file changes, no account comes back, all is whole.

LIGHTGC2N_CHAOS_KILLS sets how many commands are killed (50), LIGHTGC2N_CHAOS_SEED the seed (0).
"""

import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lightgc2n.data.dataset import load_dataset, verify_dataset
from lightgc2n.recommending.load_bundle import load_bundle
from tests.cli.test_commands import run

KILLS = int(os.environ.get("LIGHTGC2N_CHAOS_KILLS", "50"))
SEED = int(os.environ.get("LIGHTGC2N_CHAOS_SEED", "0"))
ACCOUNTS = 200
SMALL = ["--epochs", "1", "--set", "lightgc2n-plus.width=8"]


def content(folder: Path) -> dict[str, bytes | str]:
    """Return every entry below a folder with its content, links by where they point."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() or path.is_symlink()
    }


@dataclass
class World:
    """A folder with a log, what commands made of it, and files of a user in between."""

    folder: Path
    random: random.Random
    forgotten: set[str] = field(default_factory=set)  # acknowledged with exit code 0
    asked: set[str] = field(default_factory=set)  # a killed command may or may not have forgotten them
    runs: int = 0

    @property
    def data(self) -> Path:
        return self.folder / "shop"

    @property
    def bundle(self) -> Path:
        return self.folder / "bundle"

    def command(self, kind: str) -> list[str]:
        newest = self.folder / f"run-{self.runs}"
        if kind == "import":
            return ["import", f"{self.folder}/log.csv", "--out", f"{self.data}", "--force"]
        if kind == "train":
            target = f"{newest}" if self.random.random() < 0.5 else f"{self.folder}/run-{self.runs + 1}"
            return ["train", f"{self.data}", "--model", "lightgc2n-plus", *SMALL, "--out", target]
        if kind == "export":
            return ["export", f"{newest}", "--out", f"{self.bundle}", "--force", "--no-people"]
        if kind == "compare":
            return [
                "compare",
                f"{self.data}",
                "--models",
                "popularity,markov",
                "--out",
                f"{self.folder}/table",
                "--force",
            ]
        if kind == "serve":
            return ["serve", f"{self.bundle}", "--port", "0", "--json"]
        account = f"h{self.random.randrange(ACCOUNTS):06}"
        self.asked.add(account)
        return ["forget", account, "--data", f"{self.data}", "--bundle", f"{self.bundle}"]

    def start(self, kind: str) -> tuple[list[str], subprocess.Popen[str]]:
        words = self.command(kind)
        command = [sys.executable, "-m", "lightgc2n", *words]
        return words, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def note(self, words: list[str], code: int) -> None:
        """Remember what a command that ended by itself has promised."""
        if words[0] == "forget" and code == 0:
            self.forgotten.add(words[1])
        if words[0] == "train" and code == 0:
            self.runs = max(self.runs, int(words[-1].rsplit("-", 1)[1]))

    def check(self) -> None:
        verify_dataset(self.data)
        in_data = set(load_dataset(self.data).accounts)
        in_bundle = set(load_bundle(self.bundle).dataset.accounts)
        everybody = {f"h{number:06}" for number in range(ACCOUNTS)}
        assert not self.forgotten & in_data, "a forgotten account is in the dataset again"
        assert not self.forgotten & in_bundle, "a forgotten account is in the bundle again"
        assert everybody - in_data <= self.asked, "an account is gone that nobody forgot"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "work", random.Random(SEED))
    made.folder.mkdir()
    generated = run("generate", "--accounts", ACCOUNTS, "--seed", 1, "--out", made.folder / "log.csv")
    assert generated.returncode == 0, generated.stderr
    for words in (made.command("import"), ["train", made.data, "--model", "lightgc2n-plus", *SMALL, "--out",
                  made.folder / "run-0"], made.command("export")):  # fmt: skip
        done = run(*words)
        assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def canary(world: World) -> Path:
    """Files of a user where commands work: a repository, hidden files, names like ours."""
    folder = world.folder / "thesis"
    for name in (".git/HEAD", ".env", "chapter.tex", "shop/manifest.json", ".shop.old/events.npy", "run.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"mine: {name}")
    for name in (".notes", "shop.txt", ".shop.old.abc", "table.csv", "bundle.partial.txt"):
        (world.folder / name).write_text(f"mine: {name}")
    (folder / "link").symlink_to("chapter.tex")
    return folder


def finish(words: list[str], process: subprocess.Popen[str]) -> str:
    """Wait until a command has ended and return what it printed to stderr; a service ends when it is told to."""
    if words[0] == "serve" and process.poll() is None:
        assert process.stdout is not None
        process.stdout.readline()  # it listens, or it has ended
        process.terminate()
    return process.communicate(timeout=300)[1]


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_comes_back(world: World, canary: Path) -> None:
    before = content(canary)
    beside = {path.name: path.read_bytes() for path in world.folder.iterdir() if path.is_file()}
    kinds = ["import", "train", "export", "compare", "serve", "forget", "forget"]
    killed = 0
    while killed < KILLS:
        started = [world.start(world.random.choice(kinds)) for _ in range(world.random.randint(1, 3))]
        victim = world.random.choice(started)[1]
        try:
            victim.wait(timeout=world.random.uniform(0.2, 6.0))
        except subprocess.TimeoutExpired:
            victim.send_signal(signal.SIGKILL)
            killed += 1
        for words, process in started:
            error = finish(words, process)
            assert process.returncode in (0, 2, -signal.SIGKILL), (words, error)
            assert "Traceback" not in error, (words, error)
            world.note(words, process.returncode)
        world.check()
        assert content(canary) == before
        assert {name: (world.folder / name).read_bytes() for name in beside} == beside
    for kind in ("import", "forget", "compare"):  # every folder can still be written, and no hidden leftover stays
        done = run(*world.command(kind))
        assert done.returncode in (0, 2), done.stderr
    world.check()
    left = [path.name for path in world.folder.iterdir() if path.name.endswith(".lightgc2n")]
    assert [name for name in left if name in (".shop.lightgc2n", ".table.lightgc2n", ".bundle.lightgc2n")] == []


@pytest.mark.slow
def test_a_full_disk_loses_nothing(small_disk: Path) -> None:
    """Every command that writes is tried with less and less room."""
    assert run("generate", "--accounts", 50, "--seed", 1, "--out", small_disk / "log.csv").returncode == 0
    assert run("import", small_disk / "log.csv", "--out", small_disk / "shop").returncode == 0
    (small_disk / "thesis.txt").write_text("years of work")
    mine = content(small_disk)
    for room in (0, 4096, 16_384, 65_536):
        filler = small_disk / "filler"
        filler.write_bytes(bytes(max(0, shutil.disk_usage(small_disk).free - room)))
        for words in (
            ["import", small_disk / "log.csv", "--out", small_disk / "again"],
            ["import", small_disk / "log.csv", "--out", small_disk / "shop", "--force"],
            ["forget", "h000003", "--data", small_disk / "shop"],
            ["compare", small_disk / "shop", "--models", "popularity", "--out", small_disk / "table"],
            ["train", small_disk / "shop", "--model", "lightgc2n-plus", *SMALL, "--out", small_disk / "run"],
            ["simulate", small_disk / "shop", "--out", small_disk / "merged"],
            ["describe", small_disk / "shop", "--plots", small_disk / "plots"],
        ):
            done = run(*words)
            assert done.returncode in (0, 2), (words, done.stderr)
            assert "Traceback" not in done.stderr, (words, done.stderr)
            verify_dataset(small_disk / "shop")
        filler.unlink()
        assert (small_disk / "thesis.txt").read_bytes() == mine["thesis.txt"]
        assert (small_disk / "log.csv").read_bytes() == mine["log.csv"]
        for made in ("again", "table", "table.partial", "run", "merged", "plots"):
            shutil.rmtree(small_disk / made, ignore_errors=True)
