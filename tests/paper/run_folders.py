"""Run folders made by hand, as an earlier version wrote them, and plans that run in the process of the test."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.experiments.plan_runner import train_several
from lightgc2n.experiments.subprocesses import Child, TimeBudget


def in_this_process(
    children: Iterable[Child], at_once: int, budget: TimeBudget, ended: Callable[[Child, int], None]
) -> None:
    """Stands in for `run_children`: starting Python and torch anew for each would take most of the time."""
    for child in children:
        plan, out, device, _, *names = child.arguments
        if budget.left() > 0:
            code = train_several(
                Path(plan), Path(out), [str(name) for name in names], str(device), at_once, budget.left()
            )
            ended(child, code)


def described(experiment: Path, runs: Iterable[str], source: str = "E", **more: Any) -> None:
    """The description of an experiment on one dataset, added to what is there."""
    path = experiment / "experiment.json"
    found = (
        json.loads(path.read_text()) if path.is_file() else {"experiment": experiment.name, "quick": False, "asked": {}}
    )
    found["asked"][source] = {"commands": [f"make {source}"], "beside": "", "runs": dict.fromkeys(runs, ""), **more}
    experiment.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found))


def finished(
    experiment: Path,
    name: str,
    ranks: Iterable[float],
    *,
    model: str = "lightgc2n",
    source: str = "E",
    domains: tuple[str, ...] = ("all",),
    questions: str = "same",
    split: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    epochs: Iterable[float] = (3.0, 1.0, 1.0),
    **said: Any,
) -> None:
    """A run folder that holds no more than a report reads; the targets are of accounts 0, 1, 2, ..., one each."""
    folder, seconds = experiment / name, list(epochs)
    folder.mkdir(parents=True)
    run = {
        "made_by": "lightgc2n 0.1.0",
        "model": model,
        "settings": settings or {},
        "split": {"protocol": "last", "target_in_input": False, **(split or {})},
        "training": {"seed": int(name.rpartition("-seed")[2])},
        "data": {"folder": f"/somewhere/{source}", "domain": "", "checksum": "c" * 64, "name": source},
        "commit": None,
    }
    (folder / "run.json").write_text(json.dumps(run))
    rank = np.array(list(ranks), dtype=float)
    domain = np.arange(len(rank)) % len(domains)
    owner = np.arange(len(rank)) // len(domains)
    results = {
        "model": model,
        "domains": list(domains),
        "questions": [questions] * len(domains),
        "parameters": 1000,
        "stored_numbers": 0,
        "epochs": len(seconds),
        "best_epoch": 0,
        "ended_by": "patience",
        "training_seconds": sum(seconds),
        "test_seconds": 0.5,
        "validation": 0.25,
        "peak_memory_mb": 300.0,
        "device": "cpu (test)",
        "side_by_side": 1,
        "stamps": [],
        "notes": [],
        "versions": {"lightgc2n": "0", "python": "3", "torch": "2", "numpy": "2"},
        **said,
    }
    (folder / "results.json").write_text(json.dumps(results))
    rows = "".join(json.dumps({"epoch": epoch, "seconds": value}) + "\n" for epoch, value in enumerate(seconds))
    (folder / "metrics.jsonl").write_text(rows)
    np.savez(folder / "ranks.npz", rank=rank, owner=owner, domain=domain)
