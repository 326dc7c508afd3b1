"""The report on all experiments of a folder, made from their run folders alone."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from lightgc2n import zoo
from lightgc2n.errors import DataError
from lightgc2n.experiments.results import RESULTS
from lightgc2n.reporting.checking import published_section
from lightgc2n.reporting.document import Document
from lightgc2n.reporting.measured import HONEST
from lightgc2n.reporting.values import MODEL
from lightgc2n.studies import people
from lightgc2n.studies.catalogue import STUDIES
from lightgc2n.studies.found import DECISIVE, EXPERIMENT, Found, Group, Run, find, measured, read_experiment

TITLE = "LightGC²N, measured again"
SUMMARY = (
    "Several people often share one account. LightGC²N (Zhang et al., AAAI 2025) recommends the next item for such "
    "accounts, and reports large gains over nine other models.",
    "Here its experiments are run again: on honest tests, where what is asked for stands in no training data, and on "
    "the published ones, where it often does. Beside the models stand floors: rules that only count and learn nothing.",
)
OURS = "lightgc2n-plus is a model of ours, not the paper's."
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
    told = headline(there["table1"]) if "table1" in there else []
    return Document(
        title=TITLE,
        summary=(*SUMMARY, *told, *([QUICK] if quick else [])),
        verdicts=judge({name: measured(one) for name, one in there.items()}, people.agreements(known)),
        sections=(
            *(STUDIES[name].section(one, out / name) for name, one in there.items()),
            *([people.section(known)] if known else []),
            published_section(),
        ),
        made=tuple(_made(found.values())),
    )


def headline(found: Found) -> list[str]:
    """What a reader in a hurry takes home: where LightGC²N and the best floor stand on each dataset."""
    sentences = []
    for (name, protocol), groups in found.tables().items():
        order = sorted(groups, key=lambda group: -group.metric(DECISIVE))
        place = next((place for place, group in enumerate(order, 1) if group.label == MODEL), None)
        floor = next((group for group in order if zoo.ZOO[group.model].is_floor), None)
        if place is not None and floor is not None:
            own, first = order[place - 1], order[0]
            kind = "honest" if protocol in HONEST else "published"
            told = f"{name}, {kind}: LightGC²N is number {place} of {len(order)} with {DECISIVE} {_scored(own)}."
            ahead = f" First: {first.label}, {_scored(first)}." if first not in (floor, own) else ""
            sentences.append(f"{told} Best floor: {floor.label}, {_scored(floor)}.{ahead}")
    ours = any(group.model.startswith("lightgc2n-plus") for group in found.groups)
    return [*sentences, *([OURS] if sentences and ours else [])]


def _scored(group: Group) -> str:
    return f"{100 * group.metric(DECISIVE):.2f} %"


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
