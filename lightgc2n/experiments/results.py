"""What the test of a run found and what its training cost, kept in the run's folder. A floor is a run as well."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.data.files import new_file
from lightgc2n.data.overlap import Bools
from lightgc2n.data.splits import Split
from lightgc2n.devices import device_name
from lightgc2n.errors import DataError
from lightgc2n.evaluation.metrics import Floats, Longs, gains
from lightgc2n.experiments.contestants import Conditions, ranked
from lightgc2n.experiments.single import evaluate_run, open_data
from lightgc2n.training.runs import TESTED, RunPlan, sole_trainer, start_run, versions

RESULTS, RANKS = TESTED, "ranks.npz"
CUTOFFS = (5, 10, 20)
UNTRAINED = {"epochs": 0, "best_epoch": -1, "ended_by": "", "training_seconds": 0.0, "validation": None}  # a floor
KEPT = ("parameters", "stored_numbers", *UNTRAINED, "peak_memory_mb")


@dataclass(frozen=True)
class Ranks:
    """Every test target of a run: its rank, its account, and the domain it was looked for in."""

    rank: Floats
    owner: Longs
    domain: Longs


def save_results(run: Path, device: str = "cpu", at_once: int = 1) -> dict[str, Any]:
    """Tests a run and writes its ranks, then its results: a run that has results is finished.

    Args:
        at_once: how many runs shared the machine, which readers of its seconds must know.
    """
    tested = evaluate_run(run, device=device)
    ((model, ranks),) = tested.ranks.items()
    return _write(run, model, ranks, tested.split, tested.facts[model], device, at_once)


def save_floor(plan: RunPlan, run: Path, device: str = "cpu") -> dict[str, Any]:
    """Counts and tests a floor, and writes what `save_results` writes."""
    dataset, split = open_data(plan)
    start_run(run, plan, dataset)
    with sole_trainer(run):
        ranks, facts = ranked(plan, Conditions(dataset, split, device=device))
        return _write(run, plan.model, ranks, split, UNTRAINED | facts, device, 1)


def _write(
    run: Path, model: str, ranks: Floats, split: Split, facts: dict[str, Any], device: str, at_once: int
) -> dict[str, Any]:
    domain = _domains(split)
    results = {
        "model": model,
        "targets": len(ranks),
        "metrics": {name: float(column.mean()) for name, column in gains(ranks, CUTOFFS).items()},
        "domains": [domain.name for domain in split.catalogues],
        "questions": [_checksum(split, domain == number) for number in range(len(split.catalogues))],
        **{name: facts[name] for name in KEPT},
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
    """Equal for runs that were asked for the same items of the same accounts in the same order, whatever they saw."""
    starts = np.array([catalogue.start for catalogue in split.catalogues])
    within = split.test.target.astype(np.int64) - starts[_domains(split)]
    asked = np.stack([split.test.owner.astype(np.int64), within])[:, rows]
    return hashlib.sha256(asked.tobytes()).hexdigest()[:16]


def _domains(split: Split) -> Longs:
    """The number of the catalogue that each test target is in."""
    starts = [catalogue.start for catalogue in split.catalogues]
    return np.searchsorted(starts, split.test.target, side="right").astype(np.int64) - 1


def read_ranks(run: Path) -> Ranks:
    """What `save_results` wrote of each target."""
    try:
        with np.load(run / RANKS, allow_pickle=False) as kept:
            return Ranks(kept["rank"], kept["owner"], kept["domain"])
    except (OSError, ValueError, KeyError):
        raise DataError(f"{run / RANKS}: not the ranks of a run. Remove {RESULTS}, and it is tested again.") from None


def read_results(run: Path) -> dict[str, Any] | None:
    """What `save_results` wrote; nothing for a run that is not finished."""
    try:
        return dict(json.loads((run / RESULTS).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise DataError(f"{run / RESULTS}: not the results of a run. Remove it, and the run is tested again.") from None
