"""The actor on the machine of the command, which alone writes to its run folders.

It hands a run with its last checkpoint to an attempt on a node, and takes each epoch's checkpoint back. Only the newest
attempt of a run is accepted: a node that was frozen may wake up when another node has resumed its run.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from lightgc2n.files.atomic_writes import new_file
from lightgc2n.files.folder_kinds import is_temporary
from lightgc2n.training.checkpoints import BEST, LAST, METRICS, epochs_of, vocabulary_files
from lightgc2n.training.runs import RUN, TESTED, sole_trainer

Files = Mapping[str, bytes]
# What a node sends, in the order in which it is written: a run that is interrupted in between can resume.
FIRST, THEN = (BEST, METRICS, LAST), ("ranks.npz", "failed.txt", TESTED)
SENT = (*FIRST, *THEN)


@dataclass(frozen=True)
class Order:
    """A run for a node: the files of its folder, and the seconds that the attempt may take."""

    files: dict[str, bytes]
    seconds: float


@dataclass(frozen=True)
class Sight:
    """What is known of the newest attempt of a run."""

    attempt: int
    node: str  # the id; empty before it begins
    silent: float  # seconds since it was heard
    epochs: int
    refused: tuple[str, ...]  # nodes whose older attempts were refused


@dataclass
class _Run:
    folder: Path
    until: float
    lock: ExitStack
    attempt: int = 0
    node: str = ""
    heard: float = 0.0
    refused: list[str] = field(default_factory=list)


class Home:
    """The run folders of one command."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def open(self, name: str, folder: Path, until: float) -> None:
        """Lock the folder of a run for its attempts.

        Args:
            until: when the time budget ends, on the monotonic clock of this machine.
        """
        lock = ExitStack()
        lock.enter_context(sole_trainer(folder))
        self._runs[name] = _Run(folder, until, lock)

    def expect(self, name: str, attempt: int) -> None:
        """Accept this attempt of a run from now on, and no earlier one."""
        run = self._runs[name]
        run.attempt, run.node = attempt, ""

    def begin(self, name: str, attempt: int, node: str) -> Order | None:
        """Hand the run to an attempt on a node; None if it is no longer wanted."""
        run = self._heard(name, attempt, node)
        if run is None or run.until <= time.monotonic():
            return None
        wanted = (RUN, *vocabulary_files(), *SENT)
        files = {one: (run.folder / one).read_bytes() for one in wanted if (run.folder / one).is_file()}
        return Order(files, run.until - time.monotonic())

    def keep(self, name: str, attempt: int, node: str, files: Files) -> bool:
        """Write what an attempt has made; False if a newer attempt has replaced it."""
        run = self._heard(name, attempt, node)
        if run is None:
            return False
        for one in (one for one in SENT if one in files):
            with new_file(run.folder / one, force=True) as temporary:
                temporary.write_bytes(files[one])
        return True

    def sights(self) -> dict[str, Sight]:
        """The newest attempt of every open run."""
        now = time.monotonic()
        return {
            name: Sight(run.attempt, run.node, now - run.heard, epochs_of(run.folder), tuple(run.refused))
            for name, run in self._runs.items()
        }

    def close(self, name: str) -> None:
        """Unlock the folder of a run."""
        self._runs.pop(name).lock.close()

    def _heard(self, name: str, attempt: int, node: str) -> _Run | None:
        run = self._runs.get(name)
        if run is None or attempt != run.attempt:
            if run is not None:
                run.refused.append(node)
            return None
        run.node, run.heard = node, time.monotonic()
        return run


def sendable(folder: Path) -> list[Path]:
    """The files of a run that a node sends, the newest kind first: what is read later is never older."""
    return [folder / one for one in reversed(SENT) if (folder / one).is_file() and not is_temporary(one)]
