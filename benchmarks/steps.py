"""Time of a training step of several models, taken in turn in one process.

    python benchmarks/steps.py DIR... [--models lightgc2n,lightgc2n-plus] [--device cpu|cuda] [--steps 54] [--rounds 5]
    python benchmarks/steps.py prepared/E prepared/V --paper --steps 4 --warm-up 2 --rounds 3 --out OUT/steps/cpu.json

DIR is a prepared dataset of logs, read under protocol `last`. A step is taken as training takes it, making and copying
of batches included: wall time on a GPU, CPU time of one thread on a CPU. Shown is the median over the rounds, the
lowest and the highest, and how many times the first model's median that is.

`--paper` measures what the report judges: every width 16, from a fifth of the training sequences to all of them, the
variants and numbers of layers that the paper times. On a GPU it measures twice: without captured steps, and with all
the engineering that a model has. Rows go to --out, which the report reads from OUT/steps; rerun to add what is missing.
"""

import argparse
import gc
import itertools
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from lightgc2n import __version__, zoo
from lightgc2n.data.batches import TrainingBatch
from lightgc2n.data.dataset import Dataset, load_dataset
from lightgc2n.data.splits import SplitConfig, Training, split_dataset
from lightgc2n.devices import device_name, device_of, peak_bytes, reset_peak
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.paper.cost_claims import ONE_USER
from lightgc2n.paper.table1 import SHARED_ACCOUNT, at_paper_width
from lightgc2n.training.loop import Steps, TrainingConfig
from lightgc2n.training.runs import source_commit, versions

SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
ENGINEERING = {"cpu": ("none",), "cuda": ("without captured steps", "all")}


@dataclass(frozen=True)
class Case:
    """One model with its settings on a share of the data."""

    model: str
    label: str
    share: float = 1.0
    engineering: str = "all"
    settings: Mapping[str, Any] = field(default_factory=dict)


def paper_cases(shares: Sequence[float]) -> Iterator[Case]:
    """Every model that the paper times, every width 16."""
    for share in shares:
        yield from (Case(model, model, share) for model in ("lightgc2n", *SHARED_ACCOUNT))
        if share in (shares[0], shares[-1]):
            yield from (Case(f"lightgc2n-wo-{part}", f"lightgc2n-wo-{part}", share) for part in ("c", "s", "a"))
    yield Case("lightgc2n-plus", "lightgc2n-plus")
    several = ("lightgc2n", *SHARED_ACCOUNT[2:])
    yield from (Case(name, f"{name}{ONE_USER}", settings={"latent_users": 1}) for name in several)
    yield from (Case("lightgc2n", f"lightgc2n, {n} layers", settings={"layers": n}) for n in (1, 3, 4, 5))


class Timed:
    """The steps of one case, warmed up, and the batches of one epoch after another."""

    def __init__(self, case: Case, train: Training, device: str, warm_up: int) -> None:
        reset_peak(device)
        torch.manual_seed(0)
        config = TrainingConfig(cuda_graph=case.engineering == "all")
        self.model = zoo.build(case.model, train, dict(case.settings)).to(device).train()
        self.steps = Steps(self.model, train, config, device)
        self.batches = (batch for epoch in itertools.count() for batch in self.steps.batches(epoch))
        self.device = device
        self.model.start_epoch(0)
        self.take(warm_up)  # kernels are compiled, the step is captured
        self.model.start_epoch(1)
        device_of(device).synchronize()
        self.peak = peak_bytes(device)

    def take(self, steps: int) -> None:
        batch: TrainingBatch
        for batch in itertools.islice(self.batches, steps):
            self.steps(batch)

    def milliseconds(self, steps: int) -> float:
        """The mean of so many steps."""
        now = self._waited if device_of(self.device).is_gpu else time.process_time
        started = now()
        self.take(steps)
        return 1000 * (now() - started) / steps

    def _waited(self) -> float:
        device_of(self.device).synchronize()
        return time.perf_counter()


def measured(
    cases: Sequence[Case], data: Dataset, device: str, warm_up: int, steps: int, rounds: int
) -> Iterator[dict[str, Any]]:
    """One row for each case; cases take turns, so that other load on the machine slows all of them alike."""
    train = {share: split_dataset(data, SplitConfig(training_share=share)).train for share in {c.share for c in cases}}
    ready = [Timed(case, train[case.share], device, warm_up) for case in cases]
    times = [[timed.milliseconds(steps) for timed in ready] for _ in range(rounds)]
    for case, timed, found in zip(cases, ready, zip(*times, strict=True), strict=True):
        yield {
            **asdict(case),
            "milliseconds": [round(value, 3) for value in found],
            "steps_per_epoch": len(timed.steps),
            "parameters": sum(parameter.numel() for parameter in timed.model.parameters()),
            "peak_mb": round(timed.peak / 1e6, 1) if device_of(device).is_gpu else None,
        }


def record(given: argparse.Namespace) -> None:
    """Measure the cases of the paper that --out does not have yet, and write it after each dataset."""
    folders = " ".join(f"prepared/{folder.name}" for folder in given.folders)
    numbers = f"--warm-up {given.warm_up} --steps {given.steps} --rounds {given.rounds}"
    if tuple(given.shares) != SHARES:
        numbers = f"--shares {' '.join(f'{share:g}' for share in given.shares)} {numbers}"
    head = {
        "made_by": f"lightgc2n {__version__}",
        "command": f"python benchmarks/steps.py {folders} --paper --device {given.device} {numbers}",
        "device": device_name(given.device),
        "commit": source_commit(),
        "versions": versions(),
    }
    rows: list[dict[str, Any]] = json.loads(given.out.read_text())["rows"] if given.out.is_file() else []
    until = time.monotonic() + given.seconds
    every = list(paper_cases(given.shares))
    for folder, engineering in itertools.product(given.folders, ENGINEERING[given.device]):
        data = load_dataset(folder)
        done = {(row["data"], row["label"], row["share"], row["engineering"]) for row in rows}
        cases = [
            replace(case, engineering=engineering, settings={**at_paper_width(case.model), **case.settings})
            for case in every
            if (folder.name, case.label, case.share, engineering) not in done
        ]
        if not cases or time.monotonic() > until:
            continue
        found = measured(cases, data, given.device, given.warm_up, given.steps, given.rounds)
        rows += [{"data": folder.name, "checksum": data.checksum, **row} for row in found]
        gc.collect()
        given.out.parent.mkdir(parents=True, exist_ok=True)
        with new_file(given.out, force=True) as temporary:
            temporary.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n", encoding="utf-8")
        print(f"{folder.name}, engineering {engineering}: {len(rows)} rows", flush=True)


def show(given: argparse.Namespace) -> None:
    """A table of the models with their first settings."""
    print("| data | model | ms a step | lowest - highest | times the first |\n|---|---|---:|---:|---:|")
    for folder in given.folders:
        cases = [Case(name, name) for name in given.models.split(",")]
        found = list(
            measured(cases, load_dataset(folder), given.device, given.warm_up, given.steps, given.rounds),
        )
        first = statistics.median(found[0]["milliseconds"])
        for row in found:
            times = row["milliseconds"]
            middle, spread = statistics.median(times), f"{min(times):.2f} - {max(times):.2f}"
            print(f"| {folder.name} | {row['label']} | {middle:.2f} | {spread} | {middle / first:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--models", default="lightgc2n,lightgc2n-plus")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=54)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--paper", action="store_true", help="what the report judges; needs --out")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no further rows after this time")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.paper and given.out is None:
        parser.error("--paper needs --out FILE")
    record(given) if given.paper else show(given)


if __name__ == "__main__":
    main()
