"""The test of a run, saved in its folder: results.json with the run's identity, ranks.npz with every rank."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.data.splits import Split
from lightgc2n.data.subsequences import Bools
from lightgc2n.devices import device_name
from lightgc2n.errors import DataError
from lightgc2n.experiments.rank_model import Conditions, ranked
from lightgc2n.experiments.results import identity_of
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.metrics.ranking import Floats, gains
from lightgc2n.training.run import OpenData, evaluate_run, open_data
from lightgc2n.training.runs import TESTED, RunPlan, read_run, sole_trainer, start_run, versions

RESULTS, RANKS = TESTED, "ranks.npz"
CUTOFFS = (5, 10, 20)
UNTRAINED = {"epochs": 0, "best_epoch": -1, "ended_by": "", "training_seconds": 0.0, "validation": None}
SAVED_FACTS = ("parameters", "stored_numbers", *UNTRAINED, "peak_memory_mb")


@dataclass(frozen=True)
class Ranks:
    """Every test target of a run: its rank, its account, and the domain in which it was ranked."""

    rank: Floats
    owner: Longs
    domain: Longs


def save_results(run: Path, device: str = "cpu", at_once: int = 1, data: OpenData | None = None) -> dict[str, Any]:
    """Test a trained run and write its ranks, then its results: a run with results is finished.

    Args:
        at_once: number of runs that shared the machine; it affects the reported seconds.
        data: the run's dataset and split, if they are already loaded.
    """
    tested = evaluate_run(run, device=device, data=data)
    ((model, ranks),) = tested.ranks.items()
    return _write(run, ranks, tested.split, tested.facts[model], device, at_once)


def save_baseline(plan: RunPlan, run: Path, device: str = "cpu", data: OpenData | None = None) -> dict[str, Any]:
    """Build and test a simple baseline, and write the same files as `save_results`."""
    dataset, split = data or open_data(plan)
    start_run(run, plan, dataset)
    with sole_trainer(run):
        ranks, facts = ranked(plan, Conditions(dataset, split, device=device))
        return _write(run, ranks, split, UNTRAINED | facts, device, 1)


def _write(run: Path, ranks: Floats, split: Split, facts: dict[str, Any], device: str, at_once: int) -> dict[str, Any]:
    domain, identity = _domains(split), identity_of(read_run(run))
    results = {
        "model": identity["model"],
        "identity": identity,
        "targets": len(ranks),
        "metrics": {name: float(column.mean()) for name, column in gains(ranks, CUTOFFS).items()},
        "domains": [domain.name for domain in split.catalogues],
        "questions": [_checksum(split, domain == number) for number in range(len(split.catalogues))],
        **{name: facts[name] for name in SAVED_FACTS},
        "test_seconds": facts["seconds"],
        "device": device_name(device),
        "side_by_side": at_once,
        "stamps": list(split.stamps),
        "notes": list(split.notes),
        "versions": versions(),
    }
    with new_file(run / RANKS, force=True) as temporary, temporary.open("wb") as file:
        np.savez(file, rank=ranks, owner=split.test.owner.astype(np.int64), domain=domain)
    with new_file(run / RESULTS, force=True) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results


def _checksum(split: Split, rows: Bools) -> str:
    """Return a checksum of the targets and their accounts, in order; it does not depend on the histories."""
    starts = np.array([catalogue.start for catalogue in split.catalogues])
    within = split.test.target.astype(np.int64) - starts[_domains(split)]
    targets = np.stack([split.test.owner.astype(np.int64), within])[:, rows]
    return hashlib.sha256(targets.tobytes()).hexdigest()[:16]


def _domains(split: Split) -> Longs:
    """The number of the catalogue that each test target is in."""
    starts = [catalogue.start for catalogue in split.catalogues]
    return np.searchsorted(starts, split.test.target, side="right").astype(np.int64) - 1


def read_ranks(run: Path) -> Ranks:
    """Read the ranks that `save_results` wrote."""
    try:
        with np.load(run / RANKS, allow_pickle=False) as arrays:
            return Ranks(arrays["rank"], arrays["owner"], arrays["domain"])
    except (OSError, ValueError, KeyError):
        raise DataError(
            f"{run / RANKS}: not the ranks of a run. Remove {RESULTS} and rerun the plan to test the run again."
        ) from None


def read_results(run: Path) -> dict[str, Any] | None:
    """Read the results that `save_results` wrote; None if the run is not finished."""
    try:
        return dict(json.loads((run / RESULTS).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise DataError(
            f"{run / RESULTS}: not the results of a run. Remove it and rerun the plan to test the run again."
        ) from None
