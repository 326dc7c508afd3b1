"""What leaks from a test set into training, and what only looks like it.

A finding counts places of one kind and says how to read them: any count of a `leak` is one, `evidence` may be a habit
of the viewers or the very test event, a `habit` is one, a `fact` says how hard the test is. A row is a window, or a log
up to the target.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.config import unknown_name
from lightgc2n.data.dataset import TEST_PART, Dataset, Longs
from lightgc2n.data.splits import Queries, Split
from lightgc2n.data.subsequences import Bools, Rows, joined, query_rows, stands_in, training_rows
from lightgc2n.errors import DataError
from lightgc2n.progress import say

LEAK, EVIDENCE, HABIT, FACT = "leak", "evidence", "habit", "fact"
IN_INPUT, AMONG = "test targets inside their own input", "among the training events, by place"
TAIL = 4  # this many events in a row, the target last, are hardly met twice by habit
FILE_FORMATS = ("auto", "windows", "logs")


@dataclass(frozen=True)
class Finding:
    """`count` of `of` places, and how to read them; None where it cannot be told."""

    name: str
    label: str
    count: int | None
    of: int
    role: str = FACT
    phrase: str = ""  # how the verdict puts it, behind the share

    @property
    def share(self) -> float | None:
        return self.count / self.of if self.count is not None and self.of else None

    @property
    def leaks(self) -> bool:
        return self.role == LEAK and bool(self.count)

    @property
    def percent(self) -> str:
        """The share in words that never round something to nothing, nor nearly all to all."""
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
    stamps: tuple[str, ...] = ()  # the warnings that the split itself carries

    def __getitem__(self, name: str) -> Finding:
        return next(finding for finding in self.findings if finding.name == name)

    @property
    def leaks(self) -> bool:
        return any(finding.leaks for finding in self.findings)

    @property
    def verdict(self) -> str:
        """One sentence that a table made from this split can carry."""
        found = [f"{finding.percent} {finding.phrase}" for finding in self.findings if finding.leaks]
        if not found:
            row = f"test {self.kind.removesuffix('s')}"
            what = row if self["test_events"].count is None else f"test target or {row}"
            return f"No leak found: no {what} stands in the training data."
        listed = " and ".join(filter(None, (", ".join(found[:-1]), found[-1])))
        return f"Leaks: {listed}; scores on this split measure memory, not foresight."

    def to_json(self) -> dict[str, Any]:
        findings = {
            finding.name: {key: getattr(finding, key) for key in ("label", "count", "of", "share", "role")}
            for finding in self.findings
        }
        about = {"name": self.name, "kind": self.kind, "protocol": self.protocol}
        told = {"findings": findings, "notes": list(self.notes), "stamps": list(self.stamps)}
        return about | {"leaks": self.leaks, "verdict": self.verdict} | told


def warn_of_leaks(dataset: Dataset, split: Split) -> None:
    """Report the leak where the protocol is known to leak."""
    if split.stamps:
        say(audit_split(dataset, split).verdict)


def audit_split(dataset: Dataset, split: Split) -> Audit:
    """What leaks in a split of `dataset`; of windows, those kept for validation count as training windows."""
    test, training = query_rows(split.test), training_rows(split)
    if dataset.kind == "windows":  # whoever follows the published protocol trains on them
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
    """What leaks between two files of windows or logs, one a line and the target last: told by content alone."""
    from lightgc2n.data.formats.detect_format import Source, detect
    from lightgc2n.data.formats.rows import Tally
    from lightgc2n.data.formats.sequences import read_sequences

    if format not in FILE_FORMATS:
        raise DataError(f"--format: {unknown_name('format', format, FILE_FORMATS)}")
    found = [detect(path, format).format for path in (train, test)]
    if found[0] != found[1] or found[0] not in FILE_FORMATS:
        raise DataError(
            f"{train}, {test}: expected two files of windows or two of logs, one a line; found {' and '.join(found)}. "
            f"Name the format with --format, or import the data and audit a protocol."
        )
    content = read_sequences(Source(found[0], {"train": train, "test": test}), Tally())
    bounds = content["offsets"].astype(np.int64)
    rows = Rows(content["sequence_accounts"].astype(np.int64), bounds[:-1], bounds[1:], content["events"])
    in_test = content["parts"] == TEST_PART
    asked = rows.select(in_test & (rows.lengths >= 2))  # a target needs an input
    if len(asked) == 0:
        raise DataError(f"{test}: expected lines of two items or more, found none. The last item is the target.")
    sizes = len(content["accounts"]), len(content["items"])
    untold = ("target_in_input", IN_INPUT), ("test_events", f"test target events {AMONG}")
    findings = [Finding(*names, None, len(asked), LEAK) for names in untold]
    findings += _by_content(content["kind"], rows.select(~in_test), asked, *sizes)
    notes = ("read from two files, where an event's place is not known: told by content alone", *_remarks(findings))
    return Audit(f"{train.name} and {test.name}", content["kind"], "two files", tuple(findings), notes)


def _counted(name: str, label: str, hits: Bools, role: str = FACT, phrase: str = "") -> Finding:
    return Finding(name, label, int(hits.sum()), len(hits), role, phrase)


def _by_place(split: Split, training: Rows, events: int) -> list[Finding]:
    """What the places of events tell: a target in its own input, or among the events that shape a graph."""
    test, validation = split.test, split.validation
    shown = (test.start <= test.target_event) & (test.target_event < test.stop)
    trained = np.zeros(max(events, len(test.events)), dtype=bool)  # targets may stand behind all events
    trained[split.train_events] = True
    hits = {"test": trained[test.target_event], "validation": trained[validation.target_event]}
    found = [_counted("target_in_input", IN_INPUT, shown, LEAK, "of the test targets stand in their own input")]
    for part, told in hits.items():
        label, phrase = f"{part} target events {AMONG}", f"of the {part} targets are training events"
        found.append(_counted(f"{part}_events", label, told, LEAK, phrase))
    if split.config.protocol == "cold-accounts":
        seen = np.isin(np.unique(test.owner), training.account)
        label, phrase = "test accounts seen in training", "of the test accounts are seen in training"
        found.append(_counted("seen_accounts", label, seen, LEAK, phrase))
    return found


def _by_content(kind: str, training: Rows, test: Rows, accounts: int, items: int) -> list[Finding]:
    """What the items themselves tell."""
    asked = [test, test.tails(TAIL), test.tails(2), test.tails(1)]
    inside, whole = stands_in(joined(*asked), training, accounts, items)
    row, tail, step, target = inside.reshape(len(asked), -1)
    # In windows the training side may hold the very test event; in logs an item met again is a habit.
    strong, weak = (LEAK, EVIDENCE) if kind == "windows" else (HABIT, HABIT)
    one, found, named = kind.removesuffix("s"), [], False
    for name, label, hits, role, verb in (
        ("copies", f"test {kind} that are copies of a training {one}", whole[: len(test)], LEAK, "are copies of"),
        ("inside", f"test {kind} inside a training {one}", row, LEAK, "lie inside"),
        ("tail", f"last {TAIL} events of a test {one}, in a row, inside one", tail, strong, "end inside"),
    ):
        other = "one" if named else f"a training {one} of the same account"
        phrase = f"{verb} {other}" if named else f"of the test {kind} {verb} {other}"
        found.append(_counted(name, label, hits, role, phrase))
        named = named or bool(hits.any())
    return [
        *found,
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
    """How often an event repeats an earlier one of its row, at the target and at the other places behind the first."""
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
    """Every training target is an edge of the training graph, which a test target need not be."""
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
    """Events on the wrong side of a cut; where a cut must lie, the earliest target behind it tells."""
    test, validation = split.test, split.validation
    test_cut = times[test.target_event].min()
    cut = times[validation.target_event].min() if len(validation) else test_cut
    role = LEAK if split.config.protocol == "time" else FACT
    found = []
    for name, what, part, late in (
        ("late_training", "training events", "validation", times[split.train_events] >= cut),
        ("late_inputs", "test input events", "test", times[_shown(test, len(times))] >= test_cut),
    ):
        where = f"at or after the first {part} target"
        found.append(_counted(name, f"{what} {where}", late, role, f"of the {what} lie {where}"))
    tied = times[test.target_event] == times[test.target_event - 1]  # a target has an event before it
    return [*found, _counted("tied_targets", "test targets at the same time as the event before", tied)]


def _shown(queries: Queries, events: int) -> Longs:
    """The places of all events that stand in an input."""
    change = np.bincount(queries.start, minlength=events + 1) - np.bincount(queries.stop, minlength=events + 1)
    return np.flatnonzero(np.cumsum(change)[:-1] > 0)


def _remarks(findings: Iterable[Finding]) -> list[str]:
    """What a reader should know beside the leaks."""
    share = {finding.name: finding for finding in findings}
    target, other = share["target_repeats_before"], share["other_repeats_before"]
    if target.share is None or other.share is None or target.share < max(2 * other.share, other.share + 0.1):
        return []
    return [
        f"the target equals the item before it in {target.percent} of the rows, against {other.percent} at other "
        f"places: such a jump is more likely made by how the data was cut than by viewers"
    ]
