"""Logs and windows with one sequence per line: the account, a tab, and its items in order."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from lightgc2n.data.formats.blocks import Block, read_blocks
from lightgc2n.data.formats.rows import BadRow, BadRowError, Tally, id_problem, record_text, shown
from lightgc2n.errors import DataError


@dataclass(frozen=True)
class LineFormat:
    """How to split a line, and its minimal number of items."""

    separator: str
    at_least: int
    needs: str
    two_targets: bool = False  # the last two items are targets, one for each domain


# Index, id, and optional fields. The number of digits is limited: no larger index fits into memory.
ENTRY = re.compile(r"([0-9]{1,9})\t([^\x00-\x1f\x7f]+)(?:\t.*)?")
LOGS = LineFormat(" ", 1, "at least one item")
WINDOWS = LineFormat("\t", 2, "at least one item and the target")
SESSIONS = LineFormat("\t", 3, "at least one item and two targets", two_targets=True)


def read_lines(path: Path, form: LineFormat, tally: Tally) -> Iterator[pl.DataFrame]:
    """Yield good lines, block by block: `account`, and `items` as a list."""
    for block in read_blocks(path):
        tally.rows += block.rows
        frame = _fast(block, form)
        if frame is not None:
            yield frame
            continue
        for piece in block.pieces():
            frame = _fast(piece, form) if len(piece.data) < len(block.data) else None
            yield frame if frame is not None else _slow(path, piece, form, tally)


def read_dictionary(path: Path) -> list[str]:
    """Return the raw ids of a dictionary file (`index TAB raw id`, then optionally a count), ordered by index."""
    ids: dict[int, str] = {}
    for block in read_blocks(path):
        for record in block.records():
            try:
                text = record_text(record)
            except BadRowError as problem:
                raise DataError(f"{path}:{record.line}: {problem.reason}.") from None
            entry = ENTRY.fullmatch(text)
            if text and (entry is None or int(entry[1]) in ids):
                raise DataError(f"{path}:{record.line}: expected a new index, a tab and an id, found '{shown(text)}'.")
            if entry is not None:
                ids[int(entry[1])] = entry[2]
    ordered = [ids[index] for index in sorted(ids)]
    if len(set(ordered)) < len(ordered) or max(ids, default=-1) != len(ids) - 1:
        raise DataError(f"{path}: expected the indices 0, 1, 2... and each id once, found a gap or a repeated id.")
    return ordered


def _fast(block: Block, form: LineFormat) -> pl.DataFrame | None:
    if not block.is_clean():
        return None
    frame = _split(block.without_empty_lines().decode("utf-8").replace("\r\n", "\n").split("\n")[:-1], form)
    return None if frame.select(_problem(form).is_not_null().any()).item() else frame


def _slow(path: Path, block: Block, form: LineFormat, tally: Tally) -> pl.DataFrame:
    """Return the good lines of a block and reject the bad ones."""
    numbers: list[int] = []
    lines: list[str] = []
    bad: list[BadRow] = []
    for record in block.records():
        try:
            lines.append(record_text(record))
            numbers.append(record.line)
        except BadRowError as problem:
            bad.append((record.line, problem.column, problem.reason, record.data[:200].decode("utf-8", "replace")))
    frame = _split(lines, form).with_columns(reason=_problem(form), column=_place())
    for number, line, reason, column in zip(numbers, lines, frame["reason"], frame["column"], strict=True):
        if reason is not None:
            bad.append((number, column, reason, line))
    tally.reject(path, sorted(bad))
    return frame.filter(pl.col("reason").is_null()).select("account", "items")


def _split(lines: list[str], form: LineFormat) -> pl.DataFrame:
    halves = pl.col("line").str.strip_suffix("\t").str.splitn("\t", 2)
    return pl.DataFrame({"line": lines}, schema={"line": pl.String}).select(
        halves.struct.field("field_0").alias("account"),
        halves.struct.field("field_1").str.split(form.separator).alias("items"),
    )


def _problem(form: LineFormat) -> pl.Expr:
    """Return why a line is bad, null for a good one."""
    too_few = pl.when(pl.col("items").list.len().fill_null(0) < form.at_least)
    few = too_few.then(pl.lit(f"expected an account, a tab and {form.needs}"))
    problems = [id_problem(pl.col("account")), few, _item_problem()]
    return pl.coalesce(*problems, _target_problem()) if form.two_targets else pl.coalesce(*problems)


def _place() -> pl.Expr:
    """Return the column in which a line is bad."""
    return pl.when(id_problem(pl.col("account")).is_not_null()).then(pl.lit("account")).otherwise(pl.lit("items"))


def _item_problem() -> pl.Expr:
    return pl.col("items").list.eval(id_problem(pl.element())).list.drop_nulls().list.first()


def _target_problem() -> pl.Expr:
    """Items start with the letter of their domain; the last two are the targets, in the order of these letters."""
    letters = pl.col("items").list.eval(pl.element().str.slice(0, 1))
    first, second = letters.list.get(-2, null_on_oob=True), letters.list.get(-1, null_on_oob=True)
    two_domains = letters.list.set_difference(pl.concat_list(first, second)).list.len() == 0
    wrong = (
        "expected items of two domains, marked by their first letter, and at the end a target of the first and one of"
    )
    return pl.when((first >= second) | ~two_domains).then(pl.lit(f"{wrong} the second"))
