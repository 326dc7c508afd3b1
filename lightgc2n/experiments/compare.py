"""Several models on one split: metrics with intervals, by kind of target, and paired tests."""

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
from lightgc2n.data.splits import Queries, Split
from lightgc2n.errors import DataError, ScoreError, SettingError, option
from lightgc2n.experiments.comparison_cache import FINISHED, RANKS, RUNS, ComparisonCache
from lightgc2n.experiments.comparison_examples import example_rows, examples_of
from lightgc2n.experiments.comparison_tables import comparison_markdown
from lightgc2n.experiments.rank_model import Conditions, ranked, surroundings, unfit
from lightgc2n.experiments.table import csv_text, plain_table
from lightgc2n.files.folder_kinds import FolderKind
from lightgc2n.metrics.intervals import estimates
from lightgc2n.metrics.paired_tests import paired_against
from lightgc2n.metrics.ranking import Floats, gains
from lightgc2n.metrics.ranks import targets_in_history
from lightgc2n.progress import say
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.runs import RUN_FOLDER, RunPlan, source_commit, versions

RESULTS = "results.json"
COMPARISON = FolderKind(
    "comparison",
    RESULTS,
    (
        "results.md",
        "results.csv",
        f"{RANKS}/*.npy",
        f"{FINISHED}/*.json",
        *(f"{RUNS}/*/{name}" for name in (RUN_FOLDER.marker, *RUN_FOLDER.files)),
    ),
)
CUTOFFS = option("--cutoffs", "cutoffs")
DEFAULT_CUTOFFS = (5, 10, 20)
LONG_COLUMNS = ("model", "subset", "queries", "metric", "value", "low", "high")
EXCLUDED = "items of the history are left out of the lists, so a target among them counts as a miss"
SIZES = {"1-4": (1, 4), "5-9": (5, 9), "10-19": (10, 19), "20-49": (20, 49), "50+": (50, 2**31)}


class UnfitError(DataError):
    """A model cannot be trained on this data."""


@dataclass(frozen=True)
class Compared:
    """The outcome of a comparison."""

    result: dict[str, Any]  # everything, ready for JSON
    ranks: dict[str, Floats]  # model -> rank of each test target
    owner: npt.NDArray[np.int64]  # the account of each test query
    examples: tuple[dict[str, Any], ...] = ()  # contain histories: shown, and not part of the written result


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
    cache: ComparisonCache | None = None,
    beyond_accuracy: bool = False,
    examples: int = 0,
) -> Compared:
    """Train each model, calibrate it on validation targets and rank the test targets.

    Args:
        plans: the plan of each model whose settings differ from the defaults.
        optional: models that are skipped, with a reason, if they do not fit the data or cannot be trained.
        cache: stores finished models and returns those already there.
        beyond_accuracy: also measure coverage, novelty, diversity and popularity bias of the lists.
        examples: number of example accounts whose lists are returned.
    """
    if not cutoffs or min(cutoffs) < 1:
        raise SettingError(f"{CUTOFFS}: expected whole numbers from 1, found {', '.join(map(str, cutoffs))}.")
    around = surroundings(dataset, split) if beyond_accuracy else None
    rows = example_rows(split.test, examples)
    conditions = Conditions(dataset, split, exclude_seen, device, around, rows)
    plans = {name: _plan(name, split, seed) for name in models} | dict(plans or {})
    if cache is not None:
        cache.refuse_others(models)
    ranks, facts, left_out = {}, {}, {}
    for place, name in enumerate(models, start=1):
        say(f"model {place} of {len(models)}: {name}")
        try:
            ranks[name], facts[name] = _ranked(plans[name], conditions, cache)
        except (UnfitError, ScoreError) as problem:
            if name not in optional:
                raise
            say(f"{name} is left out: {problem}")
            left_out[name] = str(problem)
    if not ranks:
        raise DataError(f"{dataset.name}: no model is left to compare: {'; '.join(left_out.values())}")
    lists = {name: of_model.pop("examples", {}) for name, of_model in facts.items()}
    compared = measured(dataset, split, ranks, facts, cutoffs=cutoffs, exclude_seen=exclude_seen, seed=seed)
    similar = {} if around is None else {"similar_by": around.of}
    return replace(
        compared,
        result=compared.result | {"left_out": left_out} | similar,
        examples=examples_of(dataset, split.test, rows, ranks, lists),
    )


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
    """Return the metrics, intervals and paired tests of ranks."""
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
        "commit": source_commit(),
        "seed": seed,
        "models": _tables(ranks, facts, split, cutoffs, seed),
    }
    return Compared(result, dict(ranks), split.test.owner.astype(np.int64))


def write_results(compared: Compared, folder: Path) -> None:
    """Write results.json, results.csv, results.md and the rank of every test target to `folder`."""
    text = json.dumps(compared.result, indent=1, ensure_ascii=False)
    (folder / RESULTS).write_text(text + "\n", encoding="utf-8")
    (folder / "results.md").write_text(comparison_markdown(compared.result), encoding="utf-8")
    table = plain_table("results", LONG_COLUMNS, long_rows(compared.result))
    (folder / "results.csv").write_text(csv_text(table), encoding="utf-8")
    (folder / RANKS).mkdir(exist_ok=True)
    np.save(folder / RANKS / "owner.npy", compared.owner, allow_pickle=False)
    for name, ranks in compared.ranks.items():
        np.save(folder / RANKS / f"{name}.npy", ranks, allow_pickle=False)


def _plan(name: str, split: Split, seed: int) -> RunPlan:
    return RunPlan(Path(), name, split=split.config, training=TrainingConfig(seed=seed))


def _ranked(plan: RunPlan, conditions: Conditions, cache: ComparisonCache | None) -> tuple[Floats, dict[str, Any]]:
    if reason := unfit(plan.model, conditions.split):
        raise UnfitError(f"{plan.model}: {reason}.")
    if cache is None:
        return ranked(plan, conditions)
    finished = cache.find(plan, conditions)
    if finished is None:
        finished = ranked(plan, conditions, cache.run(plan.model))
        cache.keep(plan, conditions, *finished)
    return finished


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
    """Whether each target occurs in its own history."""
    return np.concatenate([targets_in_history(batch).numpy() for batch in query_batches(queries, 4096)])


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
    gained = {name: column[decisive] for name, column in columns.items()}
    paired = paired_against(best, gained, split.test.owner.astype(np.int64), seed)
    return {
        name: facts[name]
        | {
            "metrics": metrics[name],
            "paired": {"metric": decisive, "against": best, "difference": difference, "p": p},
        }
        for name, (difference, p) in paired.items()
    }


def _metrics(
    columns: dict[str, dict[str, Floats]],
    subsets: dict[str, npt.NDArray[np.bool_]],
    owner: npt.NDArray[np.int64],
    seed: int,
) -> dict[str, dict[str, Any]]:
    """model -> subset -> metric -> value and interval."""
    gained = {(model, metric): column for model, own in columns.items() for metric, column in own.items()}
    result: dict[str, dict[str, Any]] = {model: {} for model in columns}
    for subset, rows in subsets.items():
        chosen = {name: column[rows] for name, column in gained.items()}
        for (model, metric), estimate in estimates(chosen, owner[rows], seed).items():
            result[model].setdefault(subset, {"queries": int(rows.sum())})[metric] = asdict(estimate)
    return result


def long_rows(result: dict[str, Any]) -> Iterator[list[Any]]:
    """The rows of LONG_COLUMNS: one for each metric of each model on each subset of the targets."""
    for model, facts in result["models"].items():
        for subset, values in facts["metrics"].items():
            for metric, cell in values.items():
                if metric != "queries":
                    yield [model, subset, values["queries"], metric, cell["value"], cell["low"], cell["high"]]
        queries = facts["metrics"]["all"]["queries"]
        for measure, cell in facts.get("beyond", {}).items():
            yield [model, "all", queries, measure, cell["value"], cell["low"], cell["high"]]
