"""What the test of a run found and what its training cost, kept in the run's folder."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.data.files import new_file
from lightgc2n.data.splits import Split
from lightgc2n.devices import device_name
from lightgc2n.errors import DataError
from lightgc2n.evaluation.metrics import Floats, Longs, gains
from lightgc2n.experiments.single import evaluate_run
from lightgc2n.training.runs import versions

RESULTS, RANKS = "results.json", "ranks.npz"
CUTOFFS = (5, 10, 20)
KEPT = ("parameters", "epochs", "best_epoch", "ended_by", "training_seconds", "validation", "peak_memory_mb")


@dataclass(frozen=True)
class Ranks:
    """Every test target of a run: its rank, its account, and the domain it was looked for in."""

    rank: Floats
    owner: Longs
    domain: Longs


def save_results(run: Path, device: str = "cpu") -> dict[str, Any]:
    """Tests a run and writes its ranks, then its results: a run that has results is finished."""
    tested = evaluate_run(run, device=device)
    ((model, ranks),) = tested.ranks.items()
    results = {
        "model": model,
        "targets": len(ranks),
        "metrics": {name: float(column.mean()) for name, column in gains(ranks, CUTOFFS).items()},
        "domains": [domain.name for domain in tested.split.catalogues],
        **{name: tested.facts[model][name] for name in KEPT},
        "device": device_name(device),
        "stamps": list(tested.split.stamps),
        "versions": versions(),
    }
    with new_file(run / RANKS, force=True) as temporary, temporary.open("wb") as file:
        np.savez(file, rank=ranks, owner=tested.split.test.owner.astype(np.int64), domain=_domains(tested.split))
    with new_file(run / RESULTS, force=True) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results


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
