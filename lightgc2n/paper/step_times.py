"""Seconds of a training step at width 16, which `benchmarks/steps.py --paper` measures: records, table, comparisons.

One file in OUT/steps for each device. Models take turns in one process; every row has the time of each round. On a GPU
a model is timed without captured steps and with all the engineering that it has.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from lightgc2n.errors import DataError
from lightgc2n.experiments.results import RunResult
from lightgc2n.experiments.table import Cell, Table
from lightgc2n.paper.document import MODEL, Section
from lightgc2n.paper.findings import Comparison

FOLDER = "steps"
NOTHING = "none"  # the only engineering on a CPU
LAYERS = 2  # of the model as published


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """One model with its settings on a share of the training data, timed on one device."""

    data: str
    model: str
    label: str
    share: float
    engineering: str
    settings: Mapping[str, Any]
    milliseconds: tuple[float, ...]  # of a step, round by round
    steps_per_epoch: int
    parameters: int
    peak_mb: float | None
    device: str
    command: str
    commit: str

    @property
    def middle(self) -> float:
        return median(self.milliseconds)

    @property
    def where(self) -> str:
        """The data, the device and the engineering as text."""
        if self.engineering == NOTHING:
            return f"{self.data} on one core of a CPU"
        how = "with all the engineering each model has" if self.engineering == "all" else self.engineering
        return f"{self.data} on {self.device} {how}"


def read_step_times(out: Path) -> list[StepTimes]:
    """The records in OUT/steps."""
    return [row for path in sorted((out / FOLDER).glob("*.json")) for row in _read(path)]


def _read(path: Path) -> Iterator[StepTimes]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        head = {"device": record["device"], "command": record["command"], "commit": record["commit"] or "unknown"}
        for row in record["rows"]:
            values = {name: row[name] for name in ("data", "model", "label", "share", "engineering", "settings")}
            values |= {name: row[name] for name in ("steps_per_epoch", "parameters", "peak_mb")}
            yield StepTimes(**values, milliseconds=tuple(row["milliseconds"]), **head)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise DataError(f"{path}: not times of steps: {problem!r}. Measure again: benchmarks/steps.py.") from None


def timed(rows: Sequence[StepTimes]) -> list[Comparison]:
    """One comparison for each dataset, device and engineering; the rounds of a row are used as seeds."""
    places: dict[str, list[StepTimes]] = {}
    for row in rows:
        places.setdefault(row.where, []).append(row)
    return [
        Comparison(where, "last", {f"{row.label} at {row.share}": _runs(row) for row in rows})
        for where, rows in places.items()
    ]


def of_published_depth(every: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons without other numbers of layers than the model's."""
    return _filtered(every, lambda run: run.settings.get("layers", LAYERS) == LAYERS or run.model != MODEL)


def of_growing_data(every: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons at the model's own depth that were timed on several shares of the data."""
    published = of_published_depth(every)
    return [one for one in published if len({seeds[0].training_share for seeds in one.runs.values()}) > 1]


def of_layers(every: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons on all of the data alone, where the number of layers varies."""
    return _filtered(every, lambda run: run.training_share == 1.0)


def once_each(every: Sequence[Comparison]) -> list[Comparison]:
    """One comparison for each dataset, on all of the data, for what does not depend on the device."""
    named: dict[str, Comparison] = {}
    for one in of_layers(of_published_depth(every)):
        name = one.dataset.partition(" on ")[0]
        named.setdefault(name, Comparison(name, one.protocol, one.runs))
    return list(named.values())


def _filtered(every: Sequence[Comparison], keep: Callable[[RunResult], bool]) -> list[Comparison]:
    return [
        Comparison(one.dataset, one.protocol, {run: seeds for run, seeds in one.runs.items() if keep(seeds[0])})
        for one in every
    ]


def _runs(row: StepTimes) -> list[RunResult]:
    return [
        RunResult(
            model=row.model,
            seed=place,
            label=row.label,
            settings={"layers": LAYERS, **row.settings} if row.model == MODEL else row.settings,
            training_share=row.share,
            rank=np.ones(1),
            owner=np.zeros(1, dtype=np.int64),
            parameters=row.parameters,
            epochs=1,
            training_seconds=seconds,
            epoch_seconds=(seconds,),
            device=row.device,
            commit=row.commit,
        )
        for place, seconds in enumerate(value * row.steps_per_epoch / 1000 for value in row.milliseconds)
    ]


def section(rows: Sequence[StepTimes]) -> Section:
    """One table for each dataset, device and engineering."""
    text = (
        "Every width of every model is 16, as in the paper, and all train with batches of 256. The models take turns "
        "in one process. A step includes making the batch. On a CPU it is CPU time of one thread; on a GPU wall time, "
        "once without captured steps (CUDA graphs) for all, and once with all the engineering that each model has: "
        "captured steps where its shapes are fixed, and the Triton kernels, which LightGC²N and LightGC²N-plus have.",
        "LightGC²N has the settings of the paper, three latent users among them. π-Net, PSJNet, DA-GCN and TiDA-GCN "
        "have four, their first setting here. LightGC²N, DA-GCN and TiDA-GCN are also timed with one: claims "
        "compare default with default, and one with one.",
    )
    places: dict[str, list[StepTimes]] = {}
    for row in rows:
        places.setdefault(row.where, []).append(row)
    title = "Training steps and parameters at equal width (RQ1, Figure 3)"
    return Section(FOLDER, title, text, tuple(_table(where, rows) for where, rows in places.items()))


def _table(where: str, rows: Sequence[StepTimes]) -> Table:
    shares = sorted({row.share for row in rows})
    labels = dict.fromkeys(row.label for row in rows)
    by_label = {label: {row.share: row for row in rows if row.label == label} for label in labels}
    cells = tuple((Cell(label), *_cells(times, shares, by_label)) for label, times in by_label.items())
    columns = ("model", "parameters", *(f"ms a step at {share}" for share in shares), "of LightGC²N", "peak MB")
    name = f"{FOLDER}-{where}".replace(" ", "-")
    notes = (
        "at: the share of the training sequences. In the last column but one, at all of the data. Medians of rounds.",
        f"Measured at commit {rows[0].commit[:12]}.",
    )
    caption = f"{where}: milliseconds of a training step, every width 16"
    return Table(name, caption, columns, cells, rows[0].command, notes, bounds="fastest and slowest round")


def _cells(
    times: Mapping[float, StepTimes], shares: Sequence[float], every: Mapping[str, Mapping[float, StepTimes]]
) -> Iterator[Cell]:
    last = times[max(times)]
    yield Cell(f"{last.parameters:,}", last.parameters)
    for share in shares:
        row = times.get(share)
        yield (
            Cell("-")
            if row is None
            else Cell(f"{row.middle:.3g}", row.middle, min(row.milliseconds), max(row.milliseconds))
        )
    own = every.get(MODEL, {}).get(last.share)
    yield Cell("-") if own is None else Cell(f"{last.middle / own.middle:.2f}", last.middle / own.middle)
    yield Cell("-") if last.peak_mb is None else Cell(f"{last.peak_mb:,.0f}", last.peak_mb)
