"""Accuracy and time with larger steps: python benchmarks/batch_share.py DATA [--domain NAME] --out FOLDER

Trains `lightgc2n` once for each value of `training.batch_share`, side by side, one thread each: 0 is the fixed batch of
256 sequences. The table has the best validation MRR@20 of each run, the training seconds until it was reached, and
until 98 % of the best of the first run were. No test event is read. Rerun the command to resume.
"""

import argparse
import json
import os
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

NEAR = 0.98  # of the best validation value of the first run
ROW = "| {} | {} | {} | {} | {} | {} | {} |"


def start(given: argparse.Namespace, share: float, folder: Path) -> "subprocess.Popen[bytes]":
    """Train one run in a process of its own."""
    words = ["--epochs", str(given.epochs), "--seed", str(given.seed), "--set", f"training.batch_share={share}"]
    words += ["--set", f"training.patience={given.patience}", *(word for one in given.set for word in ("--set", one))]
    words += ["--domain", given.domain] if given.domain else []
    command = [sys.executable, "-m", "lightgc2n", "train", str(given.data), "--model", "lightgc2n"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return subprocess.Popen([*command, *words, "--device", given.device, "--out", str(folder)], env=environment)


def epochs_of(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def seconds_until(epochs: list[dict[str, float]], value: float) -> str:
    """The training seconds and epochs until validation reached a value."""
    for number, (row, seconds) in enumerate(zip(epochs, accumulate(row["seconds"] for row in epochs), strict=True), 1):
        if row["validation"] >= value:
            return f"{seconds:.0f} ({number})"
    return "not reached"


def table(folders: dict[float, Path]) -> str:
    """A row for each run; relative values are those of the best of the first run."""
    lines = [ROW.format("share", "epochs", "s an epoch", "best MRR@20", "of the first", "s (epochs) to it", "to 98 %")]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    first = max(row["validation"] for row in epochs_of(next(iter(folders.values()))))
    for share, folder in folders.items():
        epochs = epochs_of(folder)
        best, mean = max(row["validation"] for row in epochs), sum(row["seconds"] for row in epochs) / len(epochs)
        times = seconds_until(epochs, best), seconds_until(epochs, NEAR * first)
        cells = f"{share:.5f}", len(epochs), f"{mean:.1f}", f"{100 * best:.2f} %", f"{100 * best / first:.1f} %", *times
        lines.append(ROW.format(*cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--domain", default="")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 1 / 128])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--patience", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", nargs="+", default=[], help="further settings, such as lightgc2n.latent_users=1")
    given = parser.parse_args()
    folders = {share: given.out / f"share-{share:.5f}-seed{given.seed}" for share in given.shares}
    codes = [run.wait() for run in [start(given, share, folder) for share, folder in folders.items()]]
    if any(codes):
        raise SystemExit("a run failed; rerun the command to resume")
    print(table(folders))


if __name__ == "__main__":
    main()
