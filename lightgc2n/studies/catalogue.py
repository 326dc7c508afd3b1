"""Every experiment by name: what the paper calls it, what it runs, and the section that it makes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from lightgc2n.config import unknown_name
from lightgc2n.errors import SettingError
from lightgc2n.reporting.document import Section
from lightgc2n.studies import efficiency, leak, statistics, sweeps, table1
from lightgc2n.studies.found import Found
from lightgc2n.studies.setup import Entry, Setup

QUICK_EPOCHS = 3
ALL = "all"


@dataclass(frozen=True)
class Study:
    """One experiment."""

    place: str  # in the paper
    shows: str
    runs: Callable[[Setup], Iterable[Entry]]
    section: Callable[[Found, Path], Section]
    seeds: int = 1  # unless told
    epochs: int = 150  # most of a run, unless told
    measure: Callable[[Setup, Path], None] = lambda setup, folder: None  # what is written without any run
    beside: Callable[[Setup], dict[str, str]] = lambda setup: {}  # which dataset belongs to which


def _of_runs(section: Callable[[Found], Section]) -> Callable[[Found, Path], Section]:
    return lambda found, folder: section(found)


STUDIES: dict[str, Study] = {
    "statistics": Study(
        "A2, table of datasets",
        "counts, lengths, repeats, windows against events",
        lambda setup: (),
        statistics.section,
        measure=statistics.measure,
    ),
    "table1": Study(
        "RQ2, Table 1",
        "all models on each dataset, with intervals, paired tests and the paper's numbers beside",
        table1.runs_of_table1,
        _of_runs(table1.section_of_table1),
        seeds=3,
    ),
    "ablation": Study(
        "RQ3, Table 2",
        "LightGC²N and its six variants",
        table1.runs_of_ablation,
        _of_runs(table1.section_of_ablation),
        seeds=3,
    ),
    "efficiency": Study(
        "RQ1, Figure 3",
        "training time as the data grows, parameters, memory",
        efficiency.runs_of_efficiency,
        _of_runs(efficiency.section_of_efficiency),
    ),
    "ablation-efficiency": Study(
        "A6, Figure 5",
        "the same for the variants",
        efficiency.runs_of_ablation_efficiency,
        _of_runs(efficiency.section_of_ablation_efficiency),
    ),
    "hyperparameters": Study(
        "RQ4, Figure 4",
        "latent users, temperature and weight of the contrast",
        sweeps.runs_of_hyperparameters,
        _of_runs(sweeps.section_of_hyperparameters),
    ),
    "layers": Study(
        "A7, Figure 6",
        "one to five layers: accuracy, time, parameters",
        sweeps.runs_of_layers,
        _of_runs(sweeps.section_of_layers),
    ),
    "leak": Study(
        "ours",
        "each model's score from the answer in the question to honest logs",
        leak.runs_of_leak,
        _of_runs(leak.section_of_leak),
        beside=leak.beside,
    ),
}


def choose_studies(name: str) -> list[str]:
    """The experiment so called, or all of them."""
    if name != ALL and name not in STUDIES:
        raise SettingError(f"experiment: {unknown_name('experiment', name, [*STUDIES, ALL, 'list'])}")
    return list(STUDIES) if name == ALL else [name]
