"""Find leaks from the test set into training, and explain what is not a leak.

A finding counts cases of one kind. Its role says how to read the count. A `leak` is an error in the split. `evidence`
may be a viewer's habit or the test event itself. A `habit` is normal behaviour. A `fact` describes how hard the test
is. A row is a window, or a log up to the target.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.config import unknown_name
from lightgc2n.data.dataset import TEST_PART, Dataset, Longs
from lightgc2n.data.splits import Queries, Split
from lightgc2n.data.subsequences import Bools, Rows, contained_in, joined, query_rows, training_rows
from lightgc2n.errors import DataError
from lightgc2n.progress import say

LEAK, EVIDENCE, HABIT, FACT = "leak", "evidence", "habit", "fact"
IN_INPUT, AMONG = "test targets inside their own input", "among the training events, by place"
TAIL = 4  # a run of this many events, the target last, rarely repeats by habit
FILE_FORMATS = ("auto", "windows", "logs")


@dataclass(frozen=True)
class Finding:
    """`count` cases out of `of`; the count is None if it cannot be determined."""

    name: str
    label: str
    count: int | None
    of: int
    role: str = FACT
    phrase: str = ""  # the wording in the verdict, after the share

    @property
    def share(self) -> float | None:
        return self.count / self.of if self.count is not None and self.of else None

    @property
    def leaks(self) -> bool:
        return self.role == LEAK and bool(self.count)

    @property
    def percent(self) -> str:
        """The share as text; a small share is never rounded to 0 % nor a large one to 100 %."""
        if self.share is None or self.count is None:
            return "not tellable" if self.count is None else "-"
        if 0 < self.share < 0.0005:
            return "under 0.1 %"
        return "over 99.9 %" if 0.9995 <= self.share < 1 else f"{100 * self.share:.1f} %"


@dataclass(frozen=True)
class Audit:
    """All findings on one split."""

    name: str
    kind: str
    protocol: str
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    stamps: tuple[str, ...] = ()  # the warnings of the split

    def __getitem__(self, name: str) -> Finding:
        return next(finding for finding in self.findings if finding.name == name)

    @property
    def leaks(self) -> bool:
        return any(finding.leaks for finding in self.findings)

    @property
    def verdict(self) -> str:
        """One sentence to print with every table made from this split."""
        phrases = [f"{finding.percent} {finding.phrase}" for finding in self.findings if finding.leaks]
        if not phrases:
            row = f"test {self.kind.removesuffix('s')}"
            what = row if self["test_events"].count is None else f"test target or {row}"
            return f"No leak found: no {what} is in the training data."
        listed = " and ".join(filter(None, (", ".join(phrases[:-1]), phrases[-1])))
        return f"Leaks: {listed}; scores on this split measure memory, not foresight."

    def to_json(self) -> dict[str, Any]:
        findings = {
            finding.name: {key: getattr(finding, key) for key in ("label", "count", "of", "share", "role")}
            for finding in self.findings
        }
        about = {"name": self.name, "kind": self.kind, "protocol": self.protocol}
        details = {"findings": findings, "notes": list(self.notes), "stamps": list(self.stamps)}
        return about | {"leaks": self.leaks, "verdict": self.verdict} | details


def warn_of_leaks(dataset: Dataset, split: Split) -> None:
    """Report the leak where the protocol is known to leak."""
    if split.stamps:
        say(audit_split(dataset, split).verdict)


def audit_split(dataset: Dataset, split: Split) -> Audit:
    """Audit a split of `dataset`; validation windows count as training windows."""
    test, training = query_rows(split.test), training_rows(split)
    if dataset.kind == "windows":  # the published protocol trains on them
        training = joined(training, query_rows(split.validation))
    findings = _by_place(split, training, len(dataset.events))
    findings += _by_content(dataset.kind, training, test, len(dataset.accounts), len(dataset.items))
    if split.train.targets == "all":
        target = next(finding for finding in findings if finding.name == "target")
        findings += _shortcut(training, target, len(dataset.items))
    if dataset.times is not None:
        findings += _time_order(split, dataset.times)
    notes = (*split.notes, *_remarks(findings))
    return Audit(dataset.name, dataset.kind, split.config.protocol, tuple(findings), notes, split.stamps)


def audit_files(train: Path, test: Path, format: str = "auto") -> Audit:
    """Audit two files of windows or logs, one per line with the target last, by comparing their content."""
    from lightgc2n.data.formats.file_formats import Source, detect
    from lightgc2n.data.formats.rows import Tally
    from lightgc2n.data.formats.sequences import read_sequences

    if format not in FILE_FORMATS:
        raise DataError(f"--format: {unknown_name('format', format, FILE_FORMATS)}")
    formats = [detect(path, format).format for path in (train, test)]
    if formats[0] != formats[1] or formats[0] not in FILE_FORMATS:
        raise DataError(
            f"{train}, {test}: expected two files of windows or two of logs, one per line; "
            f"found {' and '.join(formats)}. "
            f"Give the format with --format, or import the data and audit a protocol."
        )
    content = read_sequences(Source(formats[0], {"train": train, "test": test}), Tally())
    bounds = content["offsets"].astype(np.int64)
    rows = Rows(content["sequence_accounts"].astype(np.int64), bounds[:-1], bounds[1:], content["events"])
    in_test = content["parts"] == TEST_PART
    test_rows = rows.select(in_test & (rows.lengths >= 2))  # a target needs an input
    if len(test_rows) == 0:
        raise DataError(f"{test}: expected lines of two items or more, found none. The last item is the target.")
    sizes = len(content["accounts"]), len(content["items"])
    unknown = ("target_in_input", IN_INPUT), ("test_events", f"test target events {AMONG}")
    findings = [Finding(*names, None, len(test_rows), LEAK) for names in unknown]
    findings += _by_content(content["kind"], rows.select(~in_test), test_rows, *sizes)
    notes = ("read from two files without event positions: compared by content only", *_remarks(findings))
    return Audit(f"{train.name} and {test.name}", content["kind"], "two files", tuple(findings), notes)


def _counted(name: str, label: str, hits: Bools, role: str = FACT, phrase: str = "") -> Finding:
    return Finding(name, label, int(hits.sum()), len(hits), role, phrase)


def _by_place(split: Split, training: Rows, events: int) -> list[Finding]:
    """Compare positions of events: targets in their own input, or among the events that the graph is built from."""
    test, validation = split.test, split.validation
    shown = (test.start <= test.target_event) & (test.target_event < test.stop)
    trained = np.zeros(max(events, len(test.events)), dtype=bool)  # targets may come after all events
    trained[split.train_events] = True
    hits = {"test": trained[test.target_event], "validation": trained[validation.target_event]}
    findings = [_counted("target_in_input", IN_INPUT, shown, LEAK, "of the test targets are in their own input")]
    for part, in_training in hits.items():
        label, phrase = f"{part} target events {AMONG}", f"of the {part} targets are training events"
        findings.append(_counted(f"{part}_events", label, in_training, LEAK, phrase))
    if split.config.protocol == "cold-accounts":
        seen = np.isin(np.unique(test.owner), training.account)
        label, phrase = "test accounts seen in training", "of the test accounts are seen in training"
        findings.append(_counted("seen_accounts", label, seen, LEAK, phrase))
    return findings


def _by_content(kind: str, training: Rows, test: Rows, accounts: int, items: int) -> list[Finding]:
    """Compare the items of test rows and training rows."""
    tails = [test, test.tails(TAIL), test.tails(2), test.tails(1)]
    inside, whole = contained_in(joined(*tails), training, accounts, items)
    row, tail, step, target = inside.reshape(len(tails), -1)
    # A training window may contain the test event itself; in logs a repeated item is a habit.
    strong, weak = (LEAK, EVIDENCE) if kind == "windows" else (HABIT, HABIT)
    one, findings, named = kind.removesuffix("s"), [], False
    for name, label, hits, role, verb in (
        ("copies", f"test {kind} that are copies of a training {one}", whole[: len(test)], LEAK, "are copies of"),
        ("inside", f"test {kind} inside a training {one}", row, LEAK, "lie inside"),
        ("tail", f"last {TAIL} events of a test {one}, in a row, inside one", tail, strong, "end inside"),
    ):
        other = "one" if named else f"a training {one} of the same account"
        phrase = f"{verb} {other}" if named else f"of the test {kind} {verb} {other}"
        findings.append(_counted(name, label, hits, role, phrase))
        named = named or bool(hits.any())
    return [
        *findings,
        _counted("step", "item before and target, in a row, inside one", step, weak),
        _counted("target", "target items in the account's training data", target, weak),
        *_unseen(training, test),
        *_repeats(joined(training, test) if kind == "windows" else test, items),
    ]


def _unseen(training: Rows, test: Rows) -> list[Finding]:
    accounts = ~np.isin(np.unique(test.account), training.account[training.lengths > 0])
    items = ~np.isin(test.events[test.stop - 1], np.unique(joined(training).events))
    return [
        _counted("unseen_accounts", "test accounts without training events", accounts),
        _counted("unseen_items", "test targets whose item training never shows", items),
    ]


def _repeats(rows: Rows, items: int) -> list[Finding]:
    """Return how often an event repeats an earlier one of its row: at the target, and elsewhere after the first."""
    rows = joined(rows.select(rows.lengths >= 2))
    before = np.append(False, rows.events[1:] == rows.events[:-1])
    earlier, other = np.ones(len(before), dtype=bool), np.ones(len(before), dtype=bool)
    row = np.repeat(np.arange(len(rows)), rows.lengths)
    earlier[np.unique(row * items + rows.events, return_index=True)[1]] = False
    other[rows.start] = other[rows.stop - 1] = False
    return [
        _counted("target_repeats_before", "the target equals the item before it", before[rows.stop - 1]),
        _counted("other_repeats_before", "  the same at other places", before[other]),
        _counted("target_repeats_earlier", "the target's item stands earlier in its row", earlier[rows.stop - 1]),
        _counted("other_repeats_earlier", "  the same at other places", earlier[other]),
    ]


def _shortcut(training: Rows, test_target: Finding, items: int) -> list[Finding]:
    """Every training target is an edge of the training graph; a test target need not be one."""
    rows = joined(training)
    key = np.repeat(rows.account, rows.lengths) * items + rows.events
    _, edge, events = np.unique(key, return_inverse=True, return_counts=True)
    is_target = np.ones(len(key), dtype=bool)
    is_target[rows.start[rows.lengths > 0]] = False
    support = events[edge[is_target]]
    return [
        _counted("training_edges", "training targets that are edges of the training graph", support > 0),
        _counted("lone_edges", "  edges that no other training event supports", support == 1),
        Finding("test_edges", "test targets that are edges of the training graph", test_target.count, test_target.of),
    ]


def _time_order(split: Split, times: Longs) -> list[Finding]:
    """Count events on the wrong side of a cut; a cut is the time of the earliest target after it."""
    test, validation = split.test, split.validation
    test_cut = times[test.target_event].min()
    cut = times[validation.target_event].min() if len(validation) else test_cut
    role = LEAK if split.config.protocol == "time" else FACT
    findings = []
    for name, what, part, late in (
        ("late_training", "training events", "validation", times[split.train_events] >= cut),
        ("late_inputs", "test input events", "test", times[_shown(test, len(times))] >= test_cut),
    ):
        where = f"at or after the first {part} target"
        findings.append(_counted(name, f"{what} {where}", late, role, f"of the {what} lie {where}"))
    tied = times[test.target_event] == times[test.target_event - 1]  # a target has an event before it
    return [*findings, _counted("tied_targets", "test targets at the same time as the event before", tied)]


def _shown(queries: Queries, events: int) -> Longs:
    """Return the positions of all events that are in an input."""
    change = np.bincount(queries.start, minlength=events + 1) - np.bincount(queries.stop, minlength=events + 1)
    return np.flatnonzero(np.cumsum(change)[:-1] > 0)


def _remarks(findings: Iterable[Finding]) -> list[str]:
    """Return remarks on findings that are not leaks but look artificial."""
    share = {finding.name: finding for finding in findings}
    target, other = share["target_repeats_before"], share["other_repeats_before"]
    if target.share is None or other.share is None or target.share < max(2 * other.share, other.share + 0.1):
        return []
    return [
        f"the target equals the item before it in {target.percent} of the rows, against {other.percent} at other "
        f"places: such a difference is more likely caused by how the data was cut than by viewers"
    ]
