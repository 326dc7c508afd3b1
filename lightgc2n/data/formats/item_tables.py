"""Item tables: title, categories, year and image of one item per row, in CSV, TSV, Parquet, movies.dat or a frame."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from lightgc2n.data.catalogue import IMAGE, ITEM_COLUMNS, CatalogueEntry, plain_name
from lightgc2n.data.formats.blocks import Record, plain_suffix, read_blocks
from lightgc2n.data.formats.columns import listed
from lightgc2n.data.formats.file_formats import DELIMITERS, Separated
from lightgc2n.data.formats.rows import LONGEST_ID, BadRowError, record_text, shown
from lightgc2n.data.formats.typed_tables import open_frame
from lightgc2n.errors import DataError, option

MOVIES = Separated("::", fixed_names=("item", "title", "genres"))  # 0068646::The Godfather (1972)::Crime|Drama
CATEGORY_SEPARATORS = ("|", ";", ",")  # the first one that occurs in the column separates
TITLE_YEAR = re.compile(r"\((\d{4})(?:[-–]\d{0,4})?\)\s*$")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
ITEMS = option("--items", "items")
Row = Mapping[str, Any]  # column role -> value


def read_items(source: Any) -> dict[str, CatalogueEntry]:
    """Return the entries of an item table by item id.

    Args:
        source: the path of a file, or a data frame of pandas, polars or Arrow.
    """
    rows = [(row, place) for row, place in _rows(source) if any(value is not None for value in row.values())]
    separator = _category_separator(row.get("categories") for row, _ in rows)
    entries: dict[str, CatalogueEntry] = {}
    places: dict[str, str] = {}
    for row, place in rows:
        item = _item_id(row.get("item"), place)
        if item in entries:
            raise DataError(f"{place}: item {item!r} is already in {places[item]}. Keep one of the two rows.")
        entries[item], places[item] = _entry(row, separator, place), _within_file(place)
    if not entries:
        raise DataError(f"{source if isinstance(source, Path) else ITEMS}: expected one item per row, found none.")
    return entries


def clean_text(text: Any) -> str:
    """Return the text on one line: runs of blanks and line breaks become one blank."""
    return " ".join(str(text).split()) if text is not None else ""


def _rows(source: Any) -> Iterator[tuple[Row, str]]:
    """Yield the rows as values by role, and the place of each for errors."""
    if not isinstance(source, Path):
        return _frame_rows(_polars_frame(source), ITEMS, 0)
    if not source.is_file():
        raise DataError(f"{source}: no such file. Give {ITEMS} a table with one item per row.")
    return _parquet_rows(source) if plain_suffix(source) in (".parquet", ".pq") else _text_rows(source)


def _polars_frame(frame: Any) -> pl.DataFrame:
    opened = open_frame(frame)
    if isinstance(opened, pl.DataFrame):
        return opened
    columns = {str(column.name): column.to_list() for column in opened.iter_columns()}
    present = {name: [value if value == value else None for value in values] for name, values in columns.items()}
    return pl.DataFrame(present, strict=False)


def _text_rows(path: Path) -> Iterator[tuple[Row, str]]:
    form, names, columns = MOVIES, list(MOVIES.fixed_names), {"item": "item", "title": "title", "categories": "genres"}
    first = _first_record(path)
    has_header = not ("::" in first and "\t" not in first)
    if has_header:
        form = _table_format(path, first)
        try:
            names = form.names(first)
        except BadRowError as problem:
            raise DataError(f"{path}:1: no header: {problem.reason}.") from None
        columns = _columns(names, f"{path}:1")
    for block in read_blocks(path, form.separator if form.quoted else ""):
        for record in block.records():
            if has_header:
                has_header = False
                continue
            place = f"{path}:{record.line}"
            by_name = _fields(form, names, columns, record, place)
            yield {role: by_name[name] for role, name in columns.items()}, place


def _fields(
    form: Separated, names: Sequence[str], columns: Mapping[str, str], record: Record, place: str
) -> dict[str, str | None]:
    try:
        text = record_text(record)
        if form is MOVIES:  # a title may contain the separator
            item, _, rest = text.partition("::")
            title, separated, genres = rest.rpartition("::")
            return {"item": item, "title": title if separated else genres, "genres": genres if separated else ""}
        return form.row(text, names, columns)
    except BadRowError as problem:
        raise DataError(f"{place}: {problem.reason}. Correct the row.") from None


def _first_record(path: Path) -> str:
    for block in read_blocks(path):
        if block.rows:
            return next(block.records()).data.decode("utf-8", "replace")
    raise DataError(f"{path}: the file is empty. Expected one item per row.")


def _table_format(path: Path, header: str) -> Separated:
    """Return the separator that gives the header an item column: a tab for TSV, one of several for CSV."""
    if plain_suffix(path) != ".csv" and "\t" in header:
        return Separated("\t")
    for sign in DELIMITERS:
        form = Separated(sign, quoted=True)
        try:
            _columns(form.names(header), "")
        except (DataError, BadRowError):
            continue
        return form
    return Separated(",", quoted=True)


def _columns(names: Sequence[str], where: str) -> dict[str, str]:
    """Return the column name of each role that the table has."""
    plain = {plain_name(name): name for name in reversed(names)}
    matching = {role: [plain[name] for name in usual.split() if name in plain] for role, usual in ITEM_COLUMNS.items()}
    columns = {role: matches[0] for role, matches in matching.items() if matches}
    if "item" not in columns or len(columns) == 1:
        missing = "item id" if "item" not in columns else "title, categories, year or image"
        raise DataError(
            f"{where}: no column looks like the {missing}. Found: {listed(names)}. Name the columns id, title, "
            f"categories, year and image; only id is required, and one of the others."
        )
    return columns


def _parquet_rows(path: Path) -> Iterator[tuple[Row, str]]:
    try:
        table = pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
        reason = shown(str(problem).partition("\n")[0], 200)
        raise DataError(f"{path}: cannot be read as Parquet: {reason}. Is the file complete?") from None
    return _frame_rows(table, str(path), 1)


def _frame_rows(table: pl.DataFrame, where: str, first: int) -> Iterator[tuple[Row, str]]:
    """Yield the rows of a typed table; `categories` may be a list column."""
    columns = _columns(table.columns, where)
    for role, name in columns.items():
        kind = table.schema[name]
        if kind.is_nested() and not (role == "categories" and isinstance(kind, pl.List)):
            raise DataError(f"{where}: column {name}: expected one value per row, found {kind}.")
    rows = table.select(pl.col(name).alias(role) for role, name in columns.items()).iter_rows(named=True)
    return ((row, f"{where}: row {number}") for number, row in enumerate(rows, start=first))


def _category_separator(columns: Iterator[Any]) -> str:
    text = "\n".join(value for value in columns if isinstance(value, str))
    return next((sign for sign in CATEGORY_SEPARATORS if sign in text), "|")


def _item_id(value: Any, place: str) -> str:
    item = "" if value is None else str(value)
    if not item or len(item.encode("utf-8")) > LONGEST_ID or CONTROL.search(item):
        raise DataError(
            f"{place}: expected an item id of at most {LONGEST_ID:,} bytes without control characters, "
            f"found '{shown(item)}'. Correct the row."
        )
    return item


def _entry(row: Row, separator: str, place: str) -> CatalogueEntry:
    title, image = clean_text(row.get("title")), clean_text(row.get("image"))
    for name, text in (("title", title), ("image", image)):
        if len(text.encode("utf-8")) > LONGEST_ID:
            raise DataError(
                f"{place}: expected {name} of at most {LONGEST_ID:,} bytes, found {len(text):,} characters."
            )
    if image and not IMAGE.fullmatch(image):
        raise DataError(
            f"{place}: expected the address of an image (http://, https:// or a path), found '{shown(image)}'."
        )
    return CatalogueEntry(title, _categories(row.get("categories"), separator), _year(row, title, place), image)


def _categories(value: Any, separator: str) -> tuple[str, ...]:
    parts = value.split(separator) if isinstance(value, str) else value or ()
    return tuple(dict.fromkeys(filter(None, (clean_text(part) for part in parts))))


def _year(row: Row, title: str, place: str) -> int | None:
    """Return the year of its column, otherwise that in brackets at the end of the title."""
    written = clean_text(row.get("year"))
    if written:
        if not re.fullmatch(r"\d{4}(\.0)?", written):
            raise DataError(f"{place}: expected a year of four digits, found '{shown(written)}'. Correct the row.")
        return int(written[:4])
    match = TITLE_YEAR.search(title)
    return int(match[1]) if match else None


def _within_file(place: str) -> str:
    """Return the place without the file: `line 3` or `row 3`."""
    line = place.rpartition(":")[2]
    return line.strip() if line.startswith(" ") else f"line {line}"
