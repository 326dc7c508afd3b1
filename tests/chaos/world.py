"""A folder in which commands work: a log, what they made of it, what they promised, and files of a user in between."""

import fcntl
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from lightgc2n.data.dataset import load_dataset, read_ids, verify_dataset
from lightgc2n.files.writer_lock import staging_folder
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.training.runs import load_run

ACCOUNTS = 200
EVERYBODY = frozenset(f"h{number:06}" for number in range(ACCOUNTS))
SMALL = ["--epochs", "1", "--set", "lightgc2n-plus.width=8"]
MINE = (
    "chapter.tex",
    ".env",
    ".git/HEAD",
    "run.json",
    "shop/manifest.json",
    ".shop.old/events.npy",
    "table/results.json",
)
BESIDE = (".notes", "shop.txt", ".shop.old.abc", "table.csv", "bundle.partial.txt", ".lightgc2n-tmp-notes")


def content(folder: Path) -> dict[str, bytes | str]:
    """Return every entry below a folder with its content, links by where they point."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() or path.is_symlink()
    }


def full_pipe() -> tuple[int, int]:
    """Return a pipe in which there is no room: who writes to it waits for a reader."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writing, b"x" * 4096)
    return reading, writing


@dataclass
class Started:
    """A command at work."""

    words: list[str]
    process: "subprocess.Popen[str]"
    checked: bool = True  # whether it must end well or say why; one without file descriptors may not even start
    stalled: tuple[int, int] | None = None  # a pipe for stderr that nobody reads

    @property
    def kind(self) -> str:
        return self.words[0]


@dataclass
class World:
    """The folder and what was promised about it."""

    folder: Path
    random: random.Random
    forgotten: set[str] = field(default_factory=set)  # acknowledged with exit code 0
    forgotten_in_run: dict[Path, set[str]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)  # a killed command may or may not have forgotten them
    trained: set[Path] = field(default_factory=set)  # runs whose training was acknowledged

    def __post_init__(self) -> None:
        self.data, self.bundle, self.table = (self.folder / name for name in ("shop", "bundle", "table"))
        self.newest = self.folder / "run-0"

    def command(self, kind: str) -> list[str]:
        """Return the words of a command of this kind."""
        if kind == "import":
            return ["import", f"{self.folder}/log.csv", "--out", f"{self.data}", "--force"]
        if kind == "train":
            number = int(self.newest.name.split("-")[1]) + self.random.randrange(2)
            return [
                "train",
                f"{self.data}",
                "--model",
                "lightgc2n-plus",
                *SMALL,
                "--out",
                f"{self.folder}/run-{number}",
            ]
        if kind == "export":
            return ["export", f"{self.newest}", "--out", f"{self.bundle}", "--force", "--no-people"]
        if kind == "compare":
            models = self.random.choice(["popularity,markov", "popularity,recency"])
            return ["compare", f"{self.data}", "--models", models, "--out", f"{self.table}", "--force"]
        if kind == "serve":
            return ["serve", f"{self.bundle}", "--port", "0", "--json"]
        account = self.random.choice(sorted(EVERYBODY))
        self.asked.add(account)
        run = ["--run", f"{self.newest}"] if self.random.random() < 0.3 else []
        return ["forget", account, "--data", f"{self.data}", "--bundle", f"{self.bundle}", *run]

    def start(self, kind: str, descriptors: int = 0, stalled: bool = False) -> Started:
        """Start a command.

        Args:
            descriptors: so many file descriptors are all that it may have.
            stalled: nobody reads what it prints to stderr.
        """
        words = self.command(kind)
        pipe = full_pipe() if stalled else None
        process = subprocess.Popen(
            [sys.executable, "-m", "lightgc2n", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if pipe is None else pipe[1],
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors,) * 2) if descriptors else None,
        )
        return Started(words, process, not descriptors, pipe)

    def wait_for_the_swap(self, started: Started) -> None:
        """Wait until a command has begun to write, so that a kill hits what matters and not the start of Python."""
        places = {"import": self.data, "forget": self.data, "export": self.bundle, "compare": self.table}
        target = places.get(started.kind)
        while started.process.poll() is None and target is not None and not staging_folder(target).exists():
            time.sleep(0.002)
        time.sleep(self.random.uniform(0.0, 0.15))

    def note(self, words: list[str], code: int) -> None:
        """Remember what a command that ended by itself has promised."""
        if words[0] == "forget" and code == 0:
            self.forgotten.add(words[1])
            if "--run" in words:
                self.forgotten_in_run.setdefault(Path(words[-1]), set()).add(words[1])
        if words[0] == "train" and code == 0:
            self.trained.add(Path(words[-1]))
            self.newest = max(self.newest, Path(words[-1]), key=lambda run: int(run.name.split("-")[1]))

    def check(self) -> tuple[set[str], set[str]]:
        """Check every promise, and return the accounts in the dataset and in the bundle."""
        verify_dataset(self.data)
        in_data = set(load_dataset(self.data).accounts)
        in_bundle = set(load_bundle(self.bundle).dataset.accounts)
        assert not self.forgotten & in_data, "a forgotten account is in the dataset again"
        assert not self.forgotten & in_bundle, "a forgotten account is in the bundle again"
        assert in_data >= EVERYBODY - self.asked, "an account is gone that nobody forgot"
        for run in self.trained:
            load_run(run)
            assert not self.forgotten_in_run.get(run, set()) & set(read_ids(run / "accounts.txt"))
        return in_data, in_bundle


def write_mine(folder: Path, names: Iterable[str]) -> None:
    """Write files of a user: a repository, hidden files, names like ours."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"mine: {name}")
