"""Whether LightGC²N suits edge devices: size, time and accuracy of its bundle, from the records in OUT/edge.

`benchmarks/edge.py RUN --out FILE` measures the bundles of a trained run. What suits such a device is a matter of
judgement, so the bounds stand here: they were set before the measurement.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightgc2n.errors import DataError
from lightgc2n.experiments.table import Cell, Table
from lightgc2n.paper.document import Holding, Section
from lightgc2n.paper.findings import Finding

FOLDER = "edge"
MOST_MB, MOST_MS, MOST_LOSS = 10.0, 50.0, 0.01  # of a download, of an answer on one core, of MRR@20


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """One form of the bundle of a trained run, and what it answers."""

    data: str
    model: str
    form: str  # "float" or "int8"
    width: int
    epochs: int  # of the run
    device_mb: float  # what a browser or a phone loads
    milliseconds: float  # the median answer on one core of a CPU
    mrr: float  # MRR@20 of the bundle's lists, in %
    of_run: float  # the same of the run that it was made from
    loss_low: float  # 95 % interval of the share of MRR@20 that is lost
    loss_high: float
    command: str
    commit: str

    @property
    def loss(self) -> float:
        return 1 - self.mrr / self.of_run

    @property
    def suits(self) -> bool:
        return self.device_mb <= MOST_MB and self.milliseconds <= MOST_MS and self.loss_high <= MOST_LOSS


def read_bundles(out: Path) -> list[Bundle]:
    """The records in OUT/edge."""
    return [one for path in sorted((out / FOLDER).glob("*.json")) for one in _read(path)]


def _read(path: Path) -> Iterator[Bundle]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        head: dict[str, Any] = {"command": str(record["command"]), "commit": str(record["commit"])}
        yield from (Bundle(**row, **head) for row in record["rows"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise DataError(f"{path}: not a record of bundles: {problem!r}. Measure again: benchmarks/edge.py.") from None


def judged(bundles: Sequence[Bundle]) -> Finding:
    """Whether some form of the model's bundle keeps all bounds, on every dataset measured."""
    own = [one for one in bundles if one.model == "lightgc2n"]
    if not own:
        return Finding("cannot be told", "No bundle was measured.")
    texts = [
        f"on {one.data} as {one.form}, width {one.width}: {one.device_mb:.2f} MB, {one.milliseconds:.1f} ms an answer "
        f"on one core, MRR@20 {one.mrr:.2f} % against {one.of_run:.2f} % of the run, {one.epochs} epochs "
        f"(loss {100 * one.loss:.2f} %, 95 %: {100 * one.loss_low:.2f} to {100 * one.loss_high:.2f})".replace("-", "−")
        for one in own
    ]
    bounds = f"At most {MOST_MB:.0f} MB, {MOST_MS:.0f} ms and {100 * MOST_LOSS:.0f} % of MRR@20 lost count as suitable"
    every = {one.data for one in own}
    good = {one.data for one in own if one.suits}
    possible = {
        one.data
        for one in own
        if one.device_mb <= MOST_MB and one.milliseconds <= MOST_MS and one.loss_low <= MOST_LOSS
    }
    holding: Holding = "holds" if good == every else "cannot be told" if possible == every else "does not hold"
    return Finding(holding, f"{'; '.join(texts)}. {bounds}; one form of the bundle suffices.")


def section(bundles: Sequence[Bundle]) -> Section:
    """One table of all forms."""
    text = (
        "A trained run exported to a bundle, which answers without torch, also in a browser: what a device loads, how "
        "long an answer takes on one core, and what accuracy the form costs.",
    )
    rows = tuple(
        (
            Cell(f"{one.data}, {one.model}, {one.form}"),
            Cell(str(one.width), one.width),
            Cell(str(one.epochs), one.epochs),
            Cell(f"{one.device_mb:.2f}", one.device_mb),
            Cell(f"{one.milliseconds:.2f}", one.milliseconds),
            Cell(f"{one.mrr:.2f}", one.mrr),
            Cell(f"{one.of_run:.2f}", one.of_run),
            Cell(f"{100 * one.loss:.2f} %", 100 * one.loss, 100 * one.loss_low, 100 * one.loss_high),
        )
        for one in bundles
    )
    columns = ("bundle", "width", "epochs", "device MB", "ms an answer", "MRR@20", "of the run", "loss")
    notes = (f"Measured at commit {bundles[0].commit[:12]}.",)
    table = Table("edge", "Bundles on one core of a CPU", columns, rows, bundles[0].command, notes)
    return Section(FOLDER, "On the device itself", text, (table,))
