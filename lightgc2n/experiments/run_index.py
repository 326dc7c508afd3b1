"""All run folders in a folder, read back as results: the seeds of one setting together, and the unfinished runs.

A run's identity comes from its results.json, or from its run.json if the results predate that field. This module also
reads old folders: for these alone it takes the label, and the seed if nothing else has it, from the folder's name.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightgc2n.errors import DataError
from lightgc2n.experiments.plan_runner import ERROR, last_log_line
from lightgc2n.experiments.results import ResultGroup, RunResult, identity_of, run_name
from lightgc2n.experiments.save_results import SAVED_FACTS, read_ranks, read_results
from lightgc2n.files.folder_kinds import is_made_by_us
from lightgc2n.progress import say
from lightgc2n.training.checkpoints import epochs_of, read_rows
from lightgc2n.training.runs import RUN, read_run

# Fields of results.json that a RunResult has under the same name.
SAME_NAME = (*SAVED_FACTS, "test_seconds", "device", "versions")
OLD_FOLDER = re.compile(r"(?P<label>.+)-seed(?P<seed>\d+)")


@dataclass(frozen=True)
class Unfinished:
    """A run without results."""

    run: str  # its folder's name
    name: str  # the same without the seed
    dataset_folder: str
    epochs: int
    error: str  # why it failed; empty if it did not

    @property
    def reason(self) -> str:
        return self.error or f"not finished, {self.epochs} epochs so far"


@dataclass(frozen=True)
class RunIndex:
    """The runs of a folder."""

    groups: tuple[ResultGroup, ...]
    unfinished: tuple[Unfinished, ...]


def read_runs(folder: Path, order: Sequence[str] = ()) -> RunIndex:
    """Read every run folder in `folder`.

    Args:
        order: names of runs without their seeds; groups come in this order, others after them by name.
    """
    place = {name: number for number, name in enumerate(order)}
    finished: dict[str, list[tuple[Path, dict[str, Any]]]] = {}
    unfinished = []
    for run in sorted(path.parent for path in folder.glob(f"*/{RUN}")):
        if not is_made_by_us(run / RUN):
            say(f"{run} is left out: its {RUN} was not made by this product")
            continue
        results = read_results(run)
        identity = _identity(run, results or {})
        name = run_name(identity["dataset"], identity["domain"], identity["label"])
        if results is None:
            unfinished.append(unfinished_run(folder, run.name, name, identity["dataset"]))
        else:
            finished.setdefault(name, []).append((run, results | {"identity": identity}))
    names = sorted(finished, key=lambda name: (place.get(name, len(place)), name))
    return RunIndex(tuple(group for name in names for group in _groups(finished[name])), tuple(unfinished))


def unfinished_run(folder: Path, run: str, name: str, dataset: str) -> Unfinished:
    """A run without results, with its epochs and the last error in its log."""
    line = last_log_line(folder, run)
    error = line.removeprefix(ERROR) if line.startswith(ERROR) else ""
    return Unfinished(run, name, dataset, epochs_of(folder / run), error)


def _groups(runs: Sequence[tuple[Path, dict[str, Any]]]) -> Iterator[ResultGroup]:
    """The seeds together, once for each domain that they were tested in."""
    every = [list(_run_results(run, results)) for run, results in runs]
    for seeds in zip(*every, strict=True):
        yield ResultGroup(tuple(sorted(seeds, key=lambda run: run.seed)))


def _run_results(run: Path, results: Mapping[str, Any]) -> Iterator[RunResult]:
    """The result in each domain that the run was tested in."""
    ranks, domains, identity = read_ranks(run), results["domains"], results["identity"]
    epoch_seconds = tuple(float(row["seconds"]) for row in read_rows(run) if "seconds" in row)
    for number, domain in enumerate(domains):
        rows = ranks.domain == number
        yield RunResult(
            model=identity["model"],
            seed=int(identity["training"]["seed"]),
            label=identity["label"],
            dataset_folder=identity["dataset"],
            data_domain=identity["domain"],
            tested_domain=domain if len(domains) > 1 else "",
            protocol=identity["protocol"],
            checksum=identity["checksum"],
            commit=identity["commit"],
            settings=identity["settings"],
            training_share=float(identity["split"].get("training_share", 1.0)),
            most_epochs=identity["training"].get("epochs"),
            rank=ranks.rank[rows],
            owner=ranks.owner[rows],
            targets_checksum=str(results["questions"][number]) if "questions" in results else "",
            domains=len(domains),
            epoch_seconds=epoch_seconds,
            at_once=int(results.get("side_by_side", 1)),
            stamps=tuple(results["stamps"]),
            notes=tuple(results.get("notes", ())),
            folder=run,
            **{name: results[name] for name in SAME_NAME if name in results},
        )


def _identity(run: Path, results: Mapping[str, Any]) -> dict[str, Any]:
    """The identity in results.json, else in run.json, else in the name of an old folder."""
    if "identity" in results:
        return dict(results["identity"])
    description = read_run(run)
    try:
        identity = identity_of(description) if description.keys() - {"made_by"} else _unknown(results)
    except (KeyError, TypeError) as problem:
        raise DataError(f"{run / RUN}: not the description of a run: {problem}. Move {run} elsewhere.") from None
    if "label" not in identity:
        identity |= {"label": _old_label(run.name, identity)}
    return identity


def _unknown(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of a run whose run.json has none."""
    rest = {"model": results.get("model", ""), "settings": {}, "split": {}, "training": {}, "commit": None}
    return {"dataset": "", "dataset_name": "", "checksum": "", "domain": "", "protocol": "", **rest}


def _old_label(folder: str, identity: dict[str, Any]) -> str:
    """The label of a run that an earlier version wrote, from its folder DATASET[-DOMAIN]-LABEL-seedN."""
    parts = OLD_FOLDER.fullmatch(folder)
    identity["training"] = {"seed": int(parts["seed"]) if parts else 0} | dict(identity["training"])
    label = parts["label"] if parts else folder
    for part in filter(None, (identity["dataset"], identity["domain"])):
        label = label.removeprefix(f"{part}-")
    return label
