"""The folder of a pipeline: one folder a round, its journal, the log, and the link to the live bundle.

pipeline.log       every decision, one line each, for people
promotions.json    which bundle was live since when, and what it was judged by; the service's page shows it
journal.json       the current round and the steps that are done
live               a link to the bundle that is served
rounds/0007/       data     the snapshot of the store, a prepared dataset
                   train    the same without the newest period, if a model is trained
                   trained  the trained run, if a model is trained
                   run      the run that counts the whole snapshot
                   bundle   what is served
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lightgc2n import __version__
from lightgc2n.data.dataset import DATASET
from lightgc2n.errors import DataError, OutputError
from lightgc2n.files.atomic_writes import claim_folder, new_file
from lightgc2n.files.folder_kinds import CLAIM, FolderKind
from lightgc2n.files.writer_lock import make_folders, recover, sole_writer, sync_file, sync_folder
from lightgc2n.progress import say
from lightgc2n.recommending.bundle_files import BUNDLE
from lightgc2n.training.runs import RUN_FOLDER

LOG, JOURNAL, PROMOTIONS, LIVE, ROUNDS = "pipeline.log", "journal.json", "promotions.json", "live", "rounds"
DATA, TRAIN, TRAINED, RUN, BUNDLE_FOLDER = "data", "train", "trained", "run", "bundle"
KINDS: dict[str, FolderKind] = {
    DATA: DATASET, TRAIN: DATASET, TRAINED: RUN_FOLDER, RUN: RUN_FOLDER, BUNDLE_FOLDER: BUNDLE,
}  # fmt: skip
CONTENT = "a pipeline"
LOCK = FolderKind("pipeline", "")
NEXT_LINK = ".live.next"


@dataclass(frozen=True)
class Round:
    """The folder of one round."""

    folder: Path

    @property
    def number(self) -> int:
        return int(self.folder.name)

    def __getitem__(self, name: str) -> Path:
        return self.folder / name

    def has(self, name: str) -> bool:
        """Return whether the pipeline's own folder of this name is there; a link is not."""
        recover(self[name])
        return not self[name].is_symlink() and KINDS[name].is_marked(self[name])

    @property
    def run(self) -> Path:
        """The run that is exported: of a model without counts, the trained one."""
        return self[RUN] if self[RUN].is_dir() else self[TRAINED]

    @property
    def data(self) -> Path:
        """The dataset of that run."""
        return self[DATA] if self[RUN].is_dir() else self[TRAIN]


class PipelineFolder:
    """The state of a pipeline on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.live = folder, folder / LIVE

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the pipeline for this process; another one gets an error. The lock ends with the process."""
        claim_folder(self.folder, CONTENT)
        with sole_writer(self.folder / "pipeline", LOCK):
            make_folders(self.folder / ROUNDS)
            yield

    def refuse_missing(self) -> None:
        """Raise an error unless a pipeline has run here."""
        if not FolderKind(CONTENT, CLAIM).is_marked(self.folder):
            raise DataError(f"{self.folder}: no pipeline has run here. Start one with: lightgc2n pipeline run FILE")

    def round(self, number: int) -> Round:
        return Round(self.folder / ROUNDS / f"{number:04d}")

    def rounds(self) -> list[Round]:
        """All rounds on disk, the oldest first; other entries of the folder are not looked at."""
        return [one for one in self._numbered() if one.folder.is_dir() and not one.folder.is_symlink()]

    def _numbered(self) -> list[Round]:
        """All entries with the name of a round, also files and links of somebody else."""
        try:
            names = sorted(os.listdir(self.folder / ROUNDS))
        except FileNotFoundError:
            return []
        return [Round(self.folder / ROUNDS / name) for name in names if name.isdecimal() and len(name) >= 4]

    def next_number(self) -> int:
        journal = self.journal() or {"round": 0}
        used = [one.number for one in self._numbered()] + [int(one["round"]) for one in self.promotions()]
        return 1 + max([int(journal["round"]), *used])

    def log(self, sentence: str) -> None:
        """Append one line to the log, durably, and print it."""
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        line = " ".join(sentence.split())
        handle = os.open(
            self.folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )
        with os.fdopen(handle, "wb") as file:
            file.write(f"{now} UTC  {line}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        say(line)

    def journal(self) -> dict[str, Any] | None:
        """The journal of the newest round."""
        return _read(self.folder / JOURNAL)

    def write_journal(self, journal: dict[str, Any]) -> None:
        _write(self.folder / JOURNAL, journal)

    def promotions(self) -> list[dict[str, Any]]:
        """Every change of the live bundle, the oldest first."""
        return list((_read(self.folder / PROMOTIONS) or {}).get("promotions", []))

    def add_promotion(self, entry: dict[str, Any]) -> None:
        """Record a change of the live bundle, unless it is recorded."""
        known = self.promotions()
        if not known or {**known[-1], "at": ""} != {**entry, "at": ""}:
            _write(self.folder / PROMOTIONS, {"promotions": [*known, entry]})

    def live_round(self) -> Round | None:
        """The round whose bundle is live; None before the first promotion."""
        one = self.linked()
        if one is None:
            return None
        if not one.has(BUNDLE_FOLDER):
            raise DataError(
                f"{self.live}: its bundle {one[BUNDLE_FOLDER]} is missing. Use: pipeline rollback --to ROUND."
            )
        return one

    def linked(self) -> Round | None:
        """The round that the link leads to, whether or not its bundle is there."""
        if not os.path.lexists(self.live):
            return None
        name = _round_of(self.live)
        if name is None:
            raise OutputError(
                f"{self.live}: expected a link to a bundle in {ROUNDS}/, found something else, so it is left alone. "
                f"Move it elsewhere, then try again."
            )
        return Round(self.folder / ROUNDS / name)

    def point_live_at(self, one: Round) -> None:
        """Replace the link at once: at any time it leads to a complete bundle."""
        self.linked()  # a file or link of somebody else is never replaced
        temporary = self.folder / NEXT_LINK
        if _round_of(temporary) is not None:  # of a killed process
            temporary.unlink()
        elif os.path.lexists(temporary):
            raise OutputError(f"{temporary}: the pipeline did not make it. Move it elsewhere, then try again.")
        sync_folder(self.folder / ROUNDS)
        os.symlink(os.path.join(ROUNDS, one.folder.name, BUNDLE_FOLDER), temporary)
        os.replace(temporary, self.live)
        sync_folder(self.folder)

    def kept(self) -> list[Round]:
        """The rounds that have a bundle, the oldest first."""
        with_bundle = {int(one["round"]) for one in self.promotions()}
        return [one for one in self.rounds() if one.number in with_bundle and one.has(BUNDLE_FOLDER)]

    def remove(self, one: Round, names: tuple[str, ...] = tuple(KINDS)) -> None:
        """Remove what the pipeline made in a round. Other files, and links, stay where they are."""
        for name in names:
            if one.has(name):
                KINDS[name].remove(one[name])
        try:
            one.folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            left = sorted(os.listdir(one.folder))
            if foreign := [name for name in left if name not in KINDS or not one.has(name)]:
                self.log(f"round {one.number}: {one.folder} holds {', '.join(foreign)}, which is not removed")


def _round_of(link: Path) -> str | None:
    """Return the name of the round whose bundle a link of the pipeline leads to; None for anything else."""
    parts = Path(os.readlink(link)).parts if link.is_symlink() else ()
    ours = len(parts) == 3 and parts[0] == ROUNDS and parts[1].isdecimal() and parts[2] == BUNDLE_FOLDER
    return parts[1] if ours else None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as problem:
        raise DataError(f"{path}: cannot be read: {problem}. Restore it from a backup, or move it elsewhere.") from None
    if not isinstance(content, dict) or "made_by" not in content:
        raise DataError(f"{path}: not a file of a pipeline. Move it elsewhere.")
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    with new_file(path, force=True) as temporary:
        described = {"made_by": f"lightgc2n {__version__}", **content}
        temporary.write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    sync_file(path)
