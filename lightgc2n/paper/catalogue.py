"""Every experiment by name: its place in the paper, its runs, and its section of the report."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from lightgc2n.config import unknown_name
from lightgc2n.errors import SettingError
from lightgc2n.paper import dataset_statistics, efficiency, leak, sweeps, table1
from lightgc2n.paper.document import Section
from lightgc2n.paper.experiment_plan import Entry, Setup
from lightgc2n.paper.experiment_results import ExperimentResults

QUICK_EPOCHS = 3
ALL = "all"


@dataclass(frozen=True)
class Experiment:
    """One experiment."""

    place: str  # in the paper
    shows: str
    runs: Callable[[Setup], Iterable[Entry]]
    section: Callable[[ExperimentResults, Path], Section]
    seeds: int = 1  # default
    epochs: int = 150  # default maximum of epochs of a run
    measure: Callable[[Setup, Path], None] = lambda setup, folder: None  # writes results that need no run
    beside: Callable[[Setup], dict[str, str]] = lambda setup: {}  # dataset -> the dataset it is compared with


def _of_runs(section: Callable[[ExperimentResults], Section]) -> Callable[[ExperimentResults, Path], Section]:
    return lambda results, folder: section(results)


EXPERIMENTS: dict[str, Experiment] = {
    "statistics": Experiment(
        "A2, table of datasets",
        "counts, lengths, repeats, windows against events",
        lambda setup: (),
        dataset_statistics.section,
        measure=dataset_statistics.measure,
    ),
    "table1": Experiment(
        "RQ2, Table 1",
        "all models on each dataset, with intervals, paired tests and the paper's numbers",
        table1.runs_of_table1,
        _of_runs(table1.section_of_table1),
        seeds=3,
    ),
    "table1-16": Experiment(
        "RQ2, Table 1",
        "the same, every width 16 as in the paper",
        table1.runs_at_paper_width,
        _of_runs(table1.section_at_paper_width),
        seeds=3,
        epochs=200,
    ),
    "ablation": Experiment(
        "RQ3, Table 2",
        "LightGC²N and its six variants",
        table1.runs_of_ablation,
        _of_runs(table1.section_of_ablation),
        seeds=3,
    ),
    "efficiency": Experiment(
        "RQ1, Figure 3",
        "training time as the data grows, parameters, memory",
        efficiency.runs_of_efficiency,
        _of_runs(efficiency.section_of_efficiency),
    ),
    "ablation-efficiency": Experiment(
        "A6, Figure 5",
        "the same for the variants",
        efficiency.runs_of_ablation_efficiency,
        _of_runs(efficiency.section_of_ablation_efficiency),
    ),
    "hyperparameters": Experiment(
        "RQ4, Figure 4",
        "latent users, temperature and weight of the contrast",
        sweeps.runs_of_hyperparameters,
        _of_runs(sweeps.section_of_hyperparameters),
    ),
    "layers": Experiment(
        "A7, Figure 6",
        "one to five layers: accuracy, time, parameters",
        sweeps.runs_of_layers,
        _of_runs(sweeps.section_of_layers),
    ),
    "leak": Experiment(
        "ours",
        "each model's score from the target in the input to honest logs",
        leak.runs_of_leak,
        _of_runs(leak.section_of_leak),
        beside=leak.beside,
    ),
}


def choose_experiments(name: str) -> list[str]:
    """The experiment with this name, or all of them."""
    if name != ALL and name not in EXPERIMENTS:
        raise SettingError(f"experiment: {unknown_name('experiment', name, [*EXPERIMENTS, ALL, 'list'])}")
    return list(EXPERIMENTS) if name == ALL else [name]
