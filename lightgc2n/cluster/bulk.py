"""Lists, or the people, of all accounts: computed in shards on a cluster, written as Parquet files with a manifest.

    manifest.json        what the parts were made from, and of each its accounts and SHA-256
    part-00000.parquet   the rows of the first accounts, in the order of the dataset

A shard is made of whole tiles, the accounts that the model scores at once: others would round sums differently. Nodes
are sent the run or the bundle once, and load it once for each of their processes.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray

from lightgc2n import __version__
from lightgc2n.cluster.attempts import Folder, read_folder, scratch, write_folder
from lightgc2n.cluster.connect import deferred_signals, refuse_here, versions_here
from lightgc2n.cluster.run_children import ClusterRunner
from lightgc2n.cluster.tasks import run_tasks
from lightgc2n.data.dataset import DATASET
from lightgc2n.errors import OUT, OutputError
from lightgc2n.files.atomic_writes import new_file, resumable_folder
from lightgc2n.files.folder_kinds import FolderKind
from lightgc2n.progress import step
from lightgc2n.recommending.bundle_files import BUNDLE, is_bundle
from lightgc2n.recommending.loading import load
from lightgc2n.recommending.people_report import Counted, Example, accounts_with_events, counted_people
from lightgc2n.recommending.queries import QueryBatch, list_options
from lightgc2n.recommending.recommender import ACCOUNTS_AT_ONCE, Recommender
from lightgc2n.recommending.write_recommendations import write_counts, write_list_blocks
from lightgc2n.training.runs import RUN_FOLDER, plan_of

MANIFEST = "manifest.json"
NUMBER = 5 * "[0-9]"
PARTS = FolderKind(  # the latter while it is unfinished
    "lists", MANIFEST, (f"part-{NUMBER}.parquet", f"counted-{NUMBER}.json")
)
SHARDS_PER_CPU = 4  # so that CPUs of different speed end at about the same time


@dataclass(frozen=True)
class Request:
    """What every task does.

    Args:
        options: of the lists; None: count the people.
    """

    key: str  # of the files that it needs
    threads: int
    device: str
    options: dict[str, Any] | None
    versions: dict[str, str]  # of the machine of the command


@dataclass(frozen=True)
class Part:
    """The answer of a task; one of an earlier call has neither its file nor its notes."""

    parquet: bytes
    notes: dict[str, list[str]]  # note -> accounts
    counted: list[Counted]


@dataclass(frozen=True)
class Source:
    """The files that a recommender is loaded from."""

    files: Folder
    data: Folder  # the dataset of a run; empty for a bundle

    @classmethod
    def read(cls, path: Path, data: Path | None) -> "Source":
        if is_bundle(path):
            return cls(read_folder(path, BUNDLE), {})
        return cls(read_folder(path, RUN_FOLDER), read_folder(data or plan_of(path).data, DATASET))

    @property
    def key(self) -> str:
        """A checksum over all files."""
        total = hashlib.sha256()
        for part in (self.files, self.data):
            for name, content in sorted(part.items()):
                total.update(f"{name} {len(content)}\n".encode())
                total.update(content.data)
        return total.hexdigest()


def shards(tiles: Sequence[int], cpus: int) -> list[tuple[int, int]]:
    """The first account of each shard and the one after its last: whole tiles, several shards for each CPU."""
    ends = np.cumsum(tiles)
    if not len(ends):
        return []
    most = max(1, int(ends[-1]) // (SHARDS_PER_CPU * max(cpus, 1)))
    starts, ranges = 0, []
    for end in ends.tolist():
        if end - starts >= most or end == ends[-1]:
            ranges.append((starts, end))
            starts = end
    return ranges


def write_parts(
    runner: ClusterRunner,
    path: Path,
    data: Path | None,
    out: Path,
    recommender: Recommender,
    options: dict[str, Any] | None,
    device: str = "cpu",
    force: bool = False,
) -> Iterator[tuple[int, Part]]:
    """Write the lists, or the people, of all accounts to the folder `out`; yield the number of each part, and the part.

    Parts of an interrupted call are kept, and yielded first.

    Args:
        recommender: over the same files, on this machine.
        options: of the lists; None: count the people.
    """
    source = Source.read(path, data)
    request = Request(source.key, runner.threads, device, options, versions_here())
    described = json.loads(json.dumps(asdict(request) | {"made_by": f"lightgc2n {__version__}"}))
    with resumable_folder(out, force, kind=PARTS) as folder:
        if not (folder / MANIFEST).is_file():
            cpus = sum(int(node.cpus // runner.threads) for node in runner.cluster.nodes())
            parts = [{"accounts": list(shard)} for shard in shards(tiles_of(recommender, options), cpus)]
            _write(folder / MANIFEST, described | {"finished": False, "parts": parts})
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        _refuse_other(manifest, described, folder, out)
        yield from _present(folder, len(manifest["parts"]))
        yield from _missing(runner, source, request, manifest["parts"], folder)
        for number in range(len(manifest["parts"])):
            (folder / _counted(number)).unlink(missing_ok=True)
        _write(folder / MANIFEST, manifest | {"finished": True, "parts": _described(folder, manifest["parts"])})


def tiles_of(recommender: Recommender, options: dict[str, Any] | None) -> list[int]:
    """The number of accounts in each tile."""
    dataset = recommender.dataset
    if options is not None:
        queries = recommender.source.histories.of_accounts(list(dataset.accounts))
        plain = list_options(dataset, np.ones(len(dataset.items), dtype=bool), 1, False)
        return recommender.scorer.tiles(QueryBatch(queries, plain, fold_in=False))
    accounts = len(accounts_with_events(dataset))
    return [min(ACCOUNTS_AT_ONCE, accounts - first) for first in range(0, accounts, ACCOUNTS_AT_ONCE)]


def _missing(
    runner: ClusterRunner, source: Source, request: Request, parts: list[dict[str, Any]], folder: Path
) -> Iterator[tuple[int, Part]]:
    """Compute the parts that are not there, and write each as it arrives."""
    left = [number for number in range(len(parts)) if not _is_there(folder, number)]
    shared = [ray.put(source.files), ray.put(source.data), request]
    wanted = [tuple(parts[number]["accounts"]) for number in left]
    total = sum(stop - first for first, stop in wanted)
    with step("accounts", total=total) as shown, deferred_signals() as deliver:
        for place, part in run_tasks(runner, compute_part, shared, wanted, deliver):
            _write(folder / _counted(left[place]), {"counted": [asdict(one) for one in part.counted]})
            with new_file(folder / _name(left[place]), force=True) as temporary:  # last: it says that the part is done
                temporary.write_bytes(part.parquet)
            shown.advance(wanted[place][1] - wanted[place][0])
            yield left[place], part


def _present(folder: Path, parts: int) -> Iterator[tuple[int, Part]]:
    """The parts of an earlier call, as far as a summary needs them."""
    for number in range(parts):
        if _is_there(folder, number):
            rows = json.loads((folder / _counted(number)).read_text(encoding="utf-8"))["counted"]
            yield number, Part(b"", {}, [Counted(Example(**row["example"]), row["fewest"]) for row in rows])


def compute_part(files: Folder, data: Folder, request: Request, accounts: tuple[int, int]) -> Part:
    """The lists, or the people, of the accounts of one shard, as a Parquet file; this runs on a node."""
    refuse_here(request.versions)
    recommender = _loaded(files, data, request)
    notes: dict[str, list[str]] = {}
    counted: list[Counted] = []
    with scratch() as folder:
        path = folder / "part.parquet"
        if request.options is not None:
            names = recommender.dataset.accounts[slice(*accounts)]
            blocks = list(recommender.list_blocks(names, **request.options))
            for account, note in (pair for block in blocks for pair in block.notes):
                notes.setdefault(note, []).append(account)
            write_list_blocks(path, blocks, recommender.dataset.items)
        else:
            names = accounts_with_events(recommender.dataset)[slice(*accounts)]
            counted = list(counted_people(recommender.people_of_all(names)))
            write_counts(path, [one.example for one in counted])
        return Part(path.read_bytes(), notes, counted)


_held: dict[str, tuple[Recommender, ExitStack]] = {}  # of this process: the recommender loaded last, and its scratch


def _loaded(files: Folder, data: Folder, request: Request) -> Recommender:
    """The recommender over these files, loaded once a process."""
    import torch

    torch.set_num_threads(request.threads)
    if request.key not in _held:
        while _held:
            _held.popitem()[1][1].close()
        opened = ExitStack()
        folder = opened.enter_context(scratch())
        write_folder(folder / "source", files)
        if data:
            write_folder(folder / "data", data)
        loaded = load(folder / "source", folder / "data" if data else None, request.device)
        _held[request.key] = loaded, opened
    return _held[request.key][0]


def _refuse_other(manifest: Mapping[str, Any], described: Mapping[str, Any], folder: Path, out: Path) -> None:
    for name, wanted in described.items():
        if manifest.get(name) != wanted:
            raise OutputError(
                f"{folder} holds parts of another request ({name} differs). Choose another {OUT} than {out}, or remove "
                f"{folder}."
            )


def _is_there(folder: Path, number: int) -> bool:
    """Whether a part is complete. A call that was killed at its very end may have left parts without their counts."""
    return (folder / _name(number)).is_file() and (folder / _counted(number)).is_file()


def _described(folder: Path, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def facts(number: int, part: dict[str, Any]) -> dict[str, Any]:
        content = (folder / _name(number)).read_bytes()
        return {"file": _name(number), **part, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    return [facts(number, part) for number, part in enumerate(parts)]


def _name(number: int) -> str:
    return f"part-{number:05}.parquet"


def _counted(number: int) -> str:
    return f"counted-{number:05}.json"


def _write(path: Path, manifest: dict[str, Any]) -> None:
    with new_file(path, force=True) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
