"""The runs of an experiment without their folders: what a report needs of each, small enough to ship.

EXPERIMENT/records/DATASET.json has the facts of every run, DATASET.npz the rank of every test target: twice the rank,
since ties share a mean rank, and 255 for all beyond place 127. Every metric at 20 or less follows from it exactly.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.errors import DataError
from lightgc2n.experiments.results import ResultGroup, RunResult
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.metrics.ranking import Floats

FOLDER = "records"
BEYOND = 255
ARRAYS = ("rank", "owner")
FACTS = tuple(field.name for field in fields(RunResult) if field.name not in (*ARRAYS, "folder"))
TUPLES = ("epoch_seconds", "stamps", "notes")


def write_records(groups: Iterable[ResultGroup], experiment: Path) -> None:
    """Write the runs of an experiment to its folder, one pair of files for each dataset and protocol."""
    tables: dict[str, list[RunResult]] = {}
    for group in groups:
        name = "-".join(filter(None, (group.dataset.replace(" ", "-"), group.protocol)))
        tables.setdefault(name, []).extend(group.runs)
    for name, runs in tables.items():
        folder = experiment / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        with new_file(folder / f"{name}.npz", force=True) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **_arrays(runs))
        rows = [{fact: getattr(run, fact) for fact in FACTS} for run in runs]
        with new_file(folder / f"{name}.json", force=True) as temporary:
            temporary.write_text(json.dumps({"runs": rows}, indent=1) + "\n", encoding="utf-8")


def _arrays(runs: Iterable[RunResult]) -> dict[str, Any]:
    """The ranks of each run, and the accounts once where they are the same as those of the run before."""
    arrays: dict[str, Any] = {}
    before = np.zeros(0, dtype=np.int64)
    for place, run in enumerate(runs):
        doubled = np.where(2 * run.rank < BEYOND, 2 * run.rank, BEYOND)
        arrays[f"rank{place}"] = doubled.astype(np.uint8)
        if not np.array_equal(run.owner, before):
            arrays[f"owner{place}"] = np.diff(run.owner, prepend=0).astype(np.int32)
            before = run.owner.astype(np.int64)
    return arrays


def read_records(experiment: Path) -> list[ResultGroup]:
    """The runs that `write_records` wrote, the seeds of one setting together."""
    groups: dict[tuple[str, str, str], list[RunResult]] = {}
    for path in sorted((experiment / FOLDER).glob("*.json")):
        for run in _read(path):
            groups.setdefault((run.name, run.protocol, run.tested_domain), []).append(run)
    return [ResultGroup(tuple(sorted(runs, key=lambda run: run.seed))) for runs in groups.values()]


def _read(path: Path) -> Iterator[RunResult]:
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["runs"]
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
            owner = np.zeros(0, dtype=np.int64)
            for place, row in enumerate(rows):
                if f"owner{place}" in arrays:
                    owner = np.cumsum(arrays[f"owner{place}"].astype(np.int64))
                run = RunResult(rank=_ranks(arrays[f"rank{place}"]), owner=owner, **_facts(row))
                yield replace(run, folder=path.parent / f"{run.name}-{run.protocol}-seed{run.seed}")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise DataError(f"{path}: not the records of runs: {problem!r}. Write them again: report --records.") from None


def _ranks(doubled: Any) -> Floats:
    return np.where(doubled == BEYOND, np.inf, doubled / 2)


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if name in TUPLES else value for name, value in row.items()}
