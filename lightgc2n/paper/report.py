"""The report on all experiments of a folder, made from their run folders."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lightgc2n import zoo
from lightgc2n.errors import DataError
from lightgc2n.experiments.results import ResultGroup, RunResult
from lightgc2n.experiments.save_results import RESULTS
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.paper import earlier, edge, people_section, step_times
from lightgc2n.paper.catalogue import EXPERIMENTS
from lightgc2n.paper.document import CALLED, Document, Opening
from lightgc2n.paper.earlier import read_earlier
from lightgc2n.paper.edge import read_bundles
from lightgc2n.paper.experiment_results import (
    EXPERIMENT,
    ExperimentResults,
    read_experiment,
    read_experiment_results,
    with_records,
)
from lightgc2n.paper.experiment_runner import merge_requests
from lightgc2n.paper.first_screen import opening_of
from lightgc2n.paper.published import BASELINES, IN_THE_ZOO, published_section, table1
from lightgc2n.paper.run_records import read_records, write_records
from lightgc2n.paper.section_tables import parts_of
from lightgc2n.paper.step_times import read_step_times
from lightgc2n.paper.table1 import AT_PAPER_WIDTH, PAPER_WIDTH, TABLE1, notes_on_data, paper_set

# What the report reads besides runs.
MEASURED = (
    f"{step_times.FOLDER}/*.json",
    f"{edge.FOLDER}/*.json",
    f"{people_section.FOLDER}/*/{people_section.RESULTS}",
    f"{earlier.FOLDER}/*",
    "statistics/*.json",
)
FIRST_SCREEN = (AT_PAPER_WIDTH, TABLE1)
OTHER_WIDTHS = (
    f"Scores are those of runs at the paper's width {PAPER_WIDTH}, or else of runs at the model's own width, which may "
    "differ from them in the tables below."
)
TITLE = "LightGC²N, measured again"
SUMMARY = (
    "Several people often share one account. LightGC²N (Zhang et al., AAAI 2025) recommends the next item for such "
    "accounts, and reports large gains over nine other models.",
    "Here its experiments are run again: on honest tests, where the event to be predicted is in no training data, and "
    "as the paper tests, where it often is.",
)
QUICK = (
    "This is a quick run on generated households, a few epochs per model: it shows the form of the report, and proves "
    "nothing."
)


def document(out: Path) -> Document:
    """The report on the experiments in `out`."""
    from lightgc2n.paper.claims import judge

    folders = [out / name for name in EXPERIMENTS if (out / name / EXPERIMENT).is_file()]
    if not folders:
        raise DataError(f"{out}: holds no experiment. Run one: lightgc2n experiment NAME --data DIR --out {out}")
    every = {folder.name: read_experiment_results(folder) for folder in folders}
    results = {name: one for name, one in every.items() if one.groups or name == "statistics"}
    if not results:
        raise DataError(f"{out}: no run is finished yet. Rerun the command that started them to resume.")
    studies = people_section.identified(out)
    steps, bundles, before = read_step_times(out), read_bundles(out), read_earlier(out)
    groups = {name: one.groups for name, one in results.items()}
    verdicts = judge(groups, people_section.agreements(studies), steps, bundles)
    quick = any(read_experiment(folder).get("quick") for folder in folders)
    return Document(
        title=TITLE,
        summary=(*SUMMARY, *([QUICK] if quick else [])),
        verdicts=verdicts,
        sections=(
            *([earlier.section_of_changes(before, verdicts)] if before else []),
            *(EXPERIMENTS[name].section(one, out / name) for name, one in results.items()),
            *([step_times.section(steps)] if steps else []),
            *([edge.section(bundles)] if bundles else []),
            *([people_section.section(studies)] if studies else []),
            published_section(),
            *([earlier.section(before)] if before else []),
        ),
        made=tuple(_made(list(every.values()))),
        opening=opening([results[name] for name in FIRST_SCREEN if name in results], _missing_runs(every)),
        quick=quick,
    )


def opening(tables: Sequence[ExperimentResults], missing: Iterable[str] = ()) -> Opening | None:
    """Return the first screen, with the paper's numbers beside ours on its data.

    Args:
        tables: Table 1 at the paper's width, then with the models' own; a model is shown from the first that has it.
        missing: sentences on runs that are missing elsewhere.
    """
    groups: dict[tuple[str, str, str], ResultGroup] = {}
    for group in (group for one in tables for group in one.groups):
        groups.setdefault((group.dataset, group.protocol, group.title), group)
    parts = [part for one in tables for part in parts_of(one)]
    sets = {(part.dataset, part.protocol): paper_set(part.dataset, part.protocol) for part in parts}
    notes = {name: " ".join(notes_on_data(name)) for (name, _), beside in sets.items() if beside}
    simple = {name for name, entry in zoo.ZOO.items() if entry.is_simple}
    screen = opening_of(list(groups.values()), simple, table1(), sets, notes)
    if screen is None:
        return None
    left_out = sorted({group.dataset for group in groups.values()} - {one.test for one in screen.standings})
    without = [f"Left out, since {CALLED} was not run there: {', '.join(left_out)}."] if left_out else []
    widths = [OTHER_WIDTHS] if tables[0].name == AT_PAPER_WIDTH and len(tables) > 1 else []
    return replace(screen, notes=(*screen.notes, *widths, *without, *_rivals_not_run(tables[0]), *missing))


def _rivals_not_run(judging: ExperimentResults) -> Iterator[str]:
    """Which of the paper's other models have no run in the table that judges claims on accuracy."""
    there = {group.model for group in judging.groups}
    absent = [name for name in BASELINES if there.isdisjoint(IN_THE_ZOO[name])]
    if absent:
        where = f" at width {PAPER_WIDTH}" if judging.name == AT_PAPER_WIDTH else ""
        share = "all" if len(absent) == len(BASELINES) else f"{len(absent)} of the"
        models = f"{share} {len(BASELINES)} other models of the paper ({', '.join(absent)})"
        yield f"Not run{where}: {models}. Claims that need them cannot be told."


def _missing_runs(every: Mapping[str, ExperimentResults]) -> Iterator[str]:
    """How many planned runs are missing, by experiment."""
    counts = {name: len(one.missing) for name, one in every.items() if one.missing}
    if counts:
        by_name = ", ".join(f"{count} of {name}" for name, count in counts.items())
        yield f"Missing besides: {sum(counts.values())} planned runs ({by_name}). The notes of each table name them."


def has_results(out: Path) -> bool:
    """Whether any run is finished or any dataset has statistics."""
    runs = (path for name in EXPERIMENTS for path in (out / name).glob(f"*/{RESULTS}"))
    return any(True for _ in runs) or (out / "statistics" / EXPERIMENT).is_file()


def write(out: Path) -> Path:
    """Write the report and return the path of its page."""
    from lightgc2n.paper.report_files import write_report

    write_report(document(out), out)
    return out / "report.html"


def ship(out: Path, to: Path) -> Path:
    """Add what the report in `out` is made of to the records in another folder, and write the report there."""
    for folder in (out / name for name in EXPERIMENTS if (out / name / EXPERIMENT).is_file()):
        results = read_experiment_results(folder)
        write_records(with_records(results.groups, read_records(to / folder.name)), to / folder.name)
        merge_requests(to / folder.name, folder.name, read_experiment(folder))
    for path in (path for pattern in MEASURED for path in sorted(out.glob(pattern))):
        place = to / path.relative_to(out)
        place.parent.mkdir(parents=True, exist_ok=True)
        with new_file(place, force=True) as temporary:
            shutil.copyfile(path, temporary)
    return write(to)


def _made(experiments: Sequence[ExperimentResults]) -> Iterator[tuple[str, str]]:
    """The rows of "How it was made"."""
    runs = {run.folder: run for one in experiments for group in one.groups for run in group.runs}.values()
    commands = dict.fromkeys(command for one in experiments for command in one.commands(one.requests))
    yield "commands", "; ".join(commands)
    yield "runs", f"{len(runs)} finished, {sum(len(one.missing) for one in experiments)} missing"
    yield "data", "; ".join(sorted({f"{run.dataset} {run.checksum[:12]}" for run in runs}))
    yield "seeds", ", ".join(map(str, sorted({run.seed for run in runs})))
    for name in ("lightgc2n", "python", "torch", "numpy"):
        yield name, ", ".join(sorted({run.versions.get(name, "unknown") for run in runs}))
    yield "commit", ", ".join(sorted({run.commit or "unknown" for run in runs}))
    for device in sorted({run.device for run in runs}):
        yield f"seconds on {device}", _seconds([run for run in runs if run.device == device])


def _seconds(runs: Sequence[RunResult]) -> str:
    trained, tested = sum(run.training_seconds for run in runs), sum(run.test_seconds for run in runs)
    return f"{trained:,.0f} of training, {tested:,.0f} of counting and tests"
