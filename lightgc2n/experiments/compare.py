"""Several models on one split, measured alike: metrics with intervals, split by what was asked, and paired tests."""

import csv
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n import __version__
from lightgc2n.data.batches import query_batches
from lightgc2n.data.dataset import Dataset
from lightgc2n.data.files import new_folder
from lightgc2n.data.splits import Queries, Split
from lightgc2n.errors import DataError, ScoreError, SettingError
from lightgc2n.evaluation.metrics import Floats, gains, interval, paired_p_values, resampled_means
from lightgc2n.evaluation.ranks import targets_in_history
from lightgc2n.experiments.contestants import Conditions, ranked, unfit
from lightgc2n.experiments.kept import RANKS, Kept
from lightgc2n.experiments.markdown import comparison_markdown
from lightgc2n.progress import say
from lightgc2n.training.runs import RunPlan, versions
from lightgc2n.training.steps import TrainingConfig

RESULTS = "results.json"
DEFAULT_CUTOFFS = (5, 10, 20)
EXCLUDED = "items of the history are left out of the lists, so a target among them counts as a miss"
SIZES = {"1-4": (1, 4), "5-9": (5, 9), "10-19": (10, 19), "20-49": (20, 49), "50+": (50, 2**31)}


class UnfitError(DataError):
    """A model cannot be compared on these data."""


@dataclass(frozen=True)
class Compared:
    """What a comparison found."""

    result: dict[str, Any]  # everything, ready for JSON
    ranks: dict[str, Floats]  # model -> rank of each test target
    owner: npt.NDArray[np.int64]  # the account of each test query


def compare(
    dataset: Dataset,
    split: Split,
    models: Sequence[str],
    *,
    cutoffs: Sequence[int] = DEFAULT_CUTOFFS,
    plans: Mapping[str, RunPlan] | None = None,
    optional: Collection[str] = (),
    exclude_seen: bool = False,
    device: str = "cpu",
    seed: int = 0,
    kept: Kept | None = None,
) -> Compared:
    """Builds each model from the training events, calibrates it on validation and ranks the test targets.

    Args:
        plans: for each model how it is made, where that differs from its defaults.
        optional: models that are left out, with a reason, where they do not fit the data or cannot be trained.
        kept: where finished models are kept, and taken from if they are there.
    """
    if not cutoffs or min(cutoffs) < 1:
        raise SettingError(f"--cutoffs: expected whole numbers from 1, found {', '.join(map(str, cutoffs))}.")
    conditions = Conditions(dataset, split, exclude_seen, device)
    plans = {name: _plan(name, split, seed) for name in models} | dict(plans or {})
    if kept is not None:
        kept.refuse_others(models)
    ranks, facts, left_out = {}, {}, {}
    for place, name in enumerate(models, start=1):
        say(f"model {place} of {len(models)}: {name}")
        try:
            ranks[name], facts[name] = _found(plans[name], conditions, kept)
        except (UnfitError, ScoreError) as problem:
            if name not in optional:
                raise
            say(f"{name} is left out: {problem}")
            left_out[name] = str(problem)
    if not ranks:
        raise DataError(f"{dataset.name}: no model is left to compare: {'; '.join(left_out.values())}")
    compared = measured(dataset, split, ranks, facts, cutoffs=cutoffs, exclude_seen=exclude_seen, seed=seed)
    return replace(compared, result=compared.result | {"left_out": left_out})


def measured(
    dataset: Dataset,
    split: Split,
    ranks: Mapping[str, Floats],
    facts: Mapping[str, dict[str, Any]],
    *,
    cutoffs: Sequence[int] = DEFAULT_CUTOFFS,
    exclude_seen: bool = False,
    seed: int = 0,
) -> Compared:
    """What the ranks of one or several models say."""
    result = {
        "made_by": f"lightgc2n {__version__}",
        "dataset": _dataset_facts(dataset),
        "split": asdict(split.config) | {"targets": split.train.targets},
        "stamps": [*split.stamps, *([EXCLUDED] if exclude_seen else [])],
        "notes": list(split.notes),
        "counts": _counts(split),
        "cutoffs": list(cutoffs),
        "exclude_seen": exclude_seen,
        "versions": versions(),
        "seed": seed,
        "models": _tables(ranks, facts, split, cutoffs, seed),
    }
    return Compared(result, dict(ranks), split.test.owner.astype(np.int64))


def write_comparison(compared: Compared, out: Path, force: bool = False) -> None:
    """Writes results.json, results.csv, results.md and the rank of every test target to a new folder."""
    with new_folder(out, force, marker=RESULTS) as folder:
        write_results(compared, folder)


def write_results(compared: Compared, folder: Path) -> None:
    """Writes the same to a folder that is there."""
    text = json.dumps(compared.result, indent=1, ensure_ascii=False)
    (folder / RESULTS).write_text(text + "\n", encoding="utf-8")
    (folder / "results.md").write_text(comparison_markdown(compared.result), encoding="utf-8")
    with (folder / "results.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["model", "subset", "queries", "metric", "value", "low", "high"])
        rows.writerows(_csv_rows(compared.result))
    (folder / RANKS).mkdir(exist_ok=True)
    np.save(folder / RANKS / "owner.npy", compared.owner, allow_pickle=False)
    for name, ranks in compared.ranks.items():
        np.save(folder / RANKS / f"{name}.npy", ranks, allow_pickle=False)


def _plan(name: str, split: Split, seed: int) -> RunPlan:
    return RunPlan(Path(), name, split=split.config, training=TrainingConfig(seed=seed))


def _found(plan: RunPlan, conditions: Conditions, kept: Kept | None) -> tuple[Floats, dict[str, Any]]:
    if reason := unfit(plan.model, conditions.split):
        raise UnfitError(f"{plan.model}: {reason}.")
    if kept is None:
        return ranked(plan, conditions)
    found = kept.find(plan, conditions)
    if found is None:
        found = ranked(plan, conditions, kept.run(plan.model))
        kept.keep(plan, conditions, *found)
    return found


def _dataset_facts(dataset: Dataset) -> dict[str, Any]:
    return {"name": dataset.name, "checksum": dataset.checksum, "kind": dataset.kind}


def _counts(split: Split) -> dict[str, int]:
    test = split.test
    known_items = split.train.popularity[test.target] > 0
    return {
        "training_events": len(split.train.events),
        "training_sequences": split.train.sequences,
        "training_examples": split.train.examples,
        "items": split.train.items,
        "validation_queries": len(split.validation),
        "test_queries": len(test),
        "test_accounts": len(np.unique(test.owner)),
        "test_repeat_targets": int(repeats(test).sum()),
        "test_targets_unseen_in_training": int((~known_items).sum()),
    }


def repeats(queries: Queries) -> npt.NDArray[np.bool_]:
    """Whether each target stands in its own input."""
    found = [targets_in_history(asked).numpy() for asked in query_batches(queries, 4096)]
    return np.concatenate(found)


def _subsets(split: Split) -> dict[str, npt.NDArray[np.bool_]]:
    again = repeats(split.test)
    length = split.test.stop - split.test.start
    subsets = {"all": np.ones(len(again), dtype=bool)}
    if split.by_domain:
        target = split.test.target
        subsets |= {f"domain {part.name}": (target >= part.start) & (target < part.stop) for part in split.catalogues}
    subsets |= {"repeat": again, "new": ~again}
    subsets |= {f"history {name}": (length >= low) & (length <= high) for name, (low, high) in SIZES.items()}
    return {name: rows for name, rows in subsets.items() if rows.any()}


def _tables(
    ranks: Mapping[str, Floats],
    facts: Mapping[str, dict[str, Any]],
    split: Split,
    cutoffs: Sequence[int],
    seed: int,
) -> dict[str, Any]:
    columns = {name: gains(rank, cutoffs) for name, rank in ranks.items()}
    metrics = _metrics(columns, _subsets(split), split.test.owner.astype(np.int64), seed)
    decisive = f"MRR@{max(cutoffs)}"
    best = max(columns, key=lambda name: columns[name][decisive].mean())
    differences = np.column_stack([found[decisive] - columns[best][decisive] for found in columns.values()])
    chances = paired_p_values(differences, split.test.owner.astype(np.int64), seed)
    return {
        name: facts[name]
        | {
            "metrics": metrics[name],
            "paired": {"metric": decisive, "against": best, "difference": float(difference), "p": float(chance)},
        }
        for name, difference, chance in zip(columns, differences.mean(axis=0), chances, strict=True)
    }


def _metrics(
    columns: dict[str, dict[str, Floats]],
    subsets: dict[str, npt.NDArray[np.bool_]],
    owner: npt.NDArray[np.int64],
    seed: int,
) -> dict[str, dict[str, Any]]:
    """model -> subset -> metric -> value and interval."""
    names = [(model, metric) for model, found in columns.items() for metric in found]
    table = np.column_stack([columns[model][metric] for model, metric in names])
    result: dict[str, dict[str, Any]] = {model: {} for model in columns}
    for subset, rows in subsets.items():
        draws = resampled_means(table[rows], owner[rows], seed)
        for place, (model, metric) in enumerate(names):
            low, high = interval(draws[:, place])
            cell = {"value": float(table[rows, place].mean()), "low": low, "high": high}
            result[model].setdefault(subset, {"queries": int(rows.sum())})[metric] = cell
    return result


def _csv_rows(result: dict[str, Any]) -> Iterator[list[Any]]:
    for model, facts in result["models"].items():
        for subset, found in facts["metrics"].items():
            for metric, cell in found.items():
                if metric != "queries":
                    yield [model, subset, found["queries"], metric, cell["value"], cell["low"], cell["high"]]
