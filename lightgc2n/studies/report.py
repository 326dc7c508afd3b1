"""The report on all experiments of a folder, made from their run folders alone."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from lightgc2n import zoo
from lightgc2n.errors import DataError
from lightgc2n.experiments.results import RESULTS
from lightgc2n.reporting.checking import published_section
from lightgc2n.reporting.document import Document, Opening
from lightgc2n.reporting.opening import opening_of
from lightgc2n.reporting.published import table1
from lightgc2n.studies import people
from lightgc2n.studies.catalogue import STUDIES
from lightgc2n.studies.found import EXPERIMENT, Found, Run, find, measured, read_experiment
from lightgc2n.studies.table1 import notes_on_data, paper_set

TITLE = "LightGC²N, measured again"
SUMMARY = (
    "Several people often share one account. LightGC²N (Zhang et al., AAAI 2025) recommends the next item for such "
    "accounts, and reports large gains over nine other models.",
    "Here its experiments are run again: on honest tests, where the event to be predicted is in no training data, and "
    "as the paper tests, where it often is.",
)
QUICK = (
    "This is a quick look at generated households, a few epochs a model: it shows how the report is made, and proves "
    "nothing."
)


def document(out: Path) -> Document:
    """What the experiments in `out` say."""
    from lightgc2n.reporting.claims import judge

    folders = [out / name for name in STUDIES if (out / name / EXPERIMENT).is_file()]
    if not folders:
        raise DataError(f"{out}: holds no experiment. Run one: lightgc2n experiment NAME --data DIR --out {out}")
    found = {folder.name: find(folder) for folder in folders}
    there = {name: one for name, one in found.items() if one.groups or name == "statistics"}
    if not there:
        raise DataError(f"{out}: no run is finished yet. Go on with the command that started them.")
    known = people.identified(out)
    quick = any(read_experiment(folder).get("quick") for folder in folders)
    return Document(
        title=TITLE,
        summary=(*SUMMARY, *([QUICK] if quick else [])),
        verdicts=judge({name: measured(one) for name, one in there.items()}, people.agreements(known)),
        sections=(
            *(STUDIES[name].section(one, out / name) for name, one in there.items()),
            *([people.section(known)] if known else []),
            published_section(),
        ),
        made=tuple(_made(found.values())),
        opening=opening(there["table1"]) if "table1" in there else None,
    )


def opening(found: Found) -> Opening | None:
    """What a reader in a hurry takes home, with the paper's numbers beside those on its data."""
    sets = {which: paper_set(*which) for which in found.tables()}
    notes = {name: " ".join(notes_on_data(name)) for (name, _), beside in sets.items() if beside}
    floors = {name for name, entry in zoo.ZOO.items() if entry.is_floor}
    return opening_of(measured(found), floors, table1(), sets, notes)


def has_something_to_say(out: Path) -> bool:
    """Whether any run is finished, or any dataset described."""
    runs = (path for name in STUDIES for path in (out / name).glob(f"*/{RESULTS}"))
    return any(True for _ in runs) or (out / "statistics" / EXPERIMENT).is_file()


def write(out: Path) -> Path:
    """Makes the report anew, and returns its page."""
    from lightgc2n.reporting.writing import write_report

    write_report(document(out), out)
    return out / "report.html"


def _made(found: Iterable[Found]) -> Iterator[tuple[str, str]]:
    """How it was made, row by row."""
    found = list(found)
    runs = {run.folder: run for one in found for group in one.groups for run in group.runs}.values()
    yield "commands", "; ".join(dict.fromkeys(command for one in found for command in one.commands(one.asked)))
    yield "runs", f"{len(runs)} finished, {sum(len(one.missing) for one in found)} missing"
    yield "data", "; ".join(sorted({f"{run.dataset} {run.described['data']['checksum'][:12]}" for run in runs}))
    yield "seeds", ", ".join(map(str, sorted({run.seed for run in runs})))
    for name in ("lightgc2n", "python", "torch", "numpy"):
        yield name, ", ".join(sorted({str(run.results["versions"][name]) for run in runs}))
    yield "commit", ", ".join(sorted({str(run.described["commit"] or "unknown") for run in runs}))
    for device in sorted({str(run.results["device"]) for run in runs}):
        yield f"seconds on {device}", _seconds([run for run in runs if run.results["device"] == device])


def _seconds(runs: list[Run]) -> str:
    trained, tested = (sum(float(run.results[name]) for run in runs) for name in ("training_seconds", "test_seconds"))
    return f"{trained:,.0f} of training, {tested:,.0f} of counting and tests"
