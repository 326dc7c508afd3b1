"""The catalogue of a dataset: titles, categories, years and images of items; files of titles, read without polars.

The catalogue is one JSON object per line. Items without events are in it too: they are the new items. The numbering of
items, which models see, does not depend on the catalogue. A file of titles is a table with a header, or an id, a tab
and a title per line.
"""

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightgc2n.errors import DataError

CATALOGUE = "catalogue.jsonl"
IMAGE = re.compile(  # an address with http:// or https://, or a path
    r"(https?://[^\s:/\"'<>\\]+(:\d{1,5})?|/?[^\s:/\"'<>\\]+)(/[^\s\"'<>\\]*)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """What is known of one item besides its events."""

    title: str = ""
    categories: tuple[str, ...] = ()
    year: int | None = None
    image: str = ""  # an address
    from_log: bool = False  # the log itself was the source: the entry is removed with the last event of its item


Catalogue = Mapping[str, CatalogueEntry]  # by item id


def join_catalogues(items: Catalogue, log_titles: Mapping[str, str]) -> dict[str, CatalogueEntry]:
    """Return the entries of an item file, completed by the titles of a log."""
    joined = {item: CatalogueEntry(title, from_log=True) for item, title in log_titles.items()}
    for item, entry in items.items():
        joined[item] = entry if entry.title else replace(entry, title=log_titles.get(item, ""))
    return joined


def without_items(catalogue: Catalogue, gone: Collection[str]) -> dict[str, CatalogueEntry]:
    """Return the catalogue without the log's own titles of items that are gone; entries of an item file stay."""
    return {item: entry for item, entry in catalogue.items() if not (entry.from_log and item in gone)}


def titles_of(catalogue: Catalogue) -> dict[str, str]:
    """Return the titles by item id, where known."""
    return {item: entry.title for item, entry in catalogue.items() if entry.title}


def format_catalogue(catalogue: Catalogue) -> bytes:
    """Return the content of the file."""
    lines = (json.dumps(_fields(item, entry), ensure_ascii=False) + "\n" for item, entry in catalogue.items())
    return "".join(lines).encode("utf-8")


def parse_catalogue(text: bytes) -> dict[str, CatalogueEntry]:
    """Return the entries by item id. Raise an error if the file is damaged."""
    try:
        return dict(_entries(text.decode("utf-8").split("\n")[:-1]))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise DataError(f"{CATALOGUE}: damaged: {problem}. Import the log again.") from None


def _fields(item: str, entry: CatalogueEntry) -> dict[str, Any]:
    known = {"title": entry.title, "categories": list(entry.categories), "year": entry.year, "image": entry.image}
    return {"item": item} | {key: value for key, value in (known | {"from_log": entry.from_log}).items() if value}


def _entries(lines: Iterable[str]) -> Iterable[tuple[str, CatalogueEntry]]:
    for line in lines:
        fields = json.loads(line)
        item = fields.pop("item")
        known = {key: value for key, value in fields.items() if key in CatalogueEntry.__slots__}  # later versions add
        yield item, CatalogueEntry(**known | {"categories": tuple(fields.get("categories", ()))})


ITEM_COLUMNS = {  # the usual names of the columns of an item table, without case, blanks and punctuation
    "item": "item itemid id movie movieid video videoid program programid content contentid product productid asin "
    "parentasin sku article articleid track trackid song songid book bookid isbn iid",
    "title": "title itemtitle movietitle producttitle programtitle name itemname productname",
    "categories": "categories category genres genre tags",
    "year": "year releaseyear",
    "image": "image imageurl imageaddress poster posterurl thumbnail thumbnailurl cover coverurl",
}
SEPARATORS = ("\t", ";", ",", "|")
EXPECTED = "Write a table with a header such as id,title, or an item id, a tab and its title per line."


def plain_name(name: str) -> str:
    """Return the name of a column without case, blanks and punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def read_titles(path: Path) -> dict[str, str]:
    """Return the titles by item id; the last one of a repeated id.

    An item table that `import --items` reads as CSV or TSV is accepted too.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8. {EXPECTED}") from None
    titles = {item: " ".join(title.split()) for item, title in _rows(path, text) if title.strip()}
    if not titles:
        raise DataError(f"{path}: holds no title. {EXPECTED}")
    return titles


def _rows(path: Path, text: str) -> Iterator[tuple[str, str]]:
    lines = text.splitlines()
    separator, columns = _header(lines[0] if lines else "")
    if not columns:
        yield from _pairs(path, lines)
        return
    rows = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL)
    try:
        next(rows)
        for row in rows:
            if row and len(row) <= max(columns):
                raise DataError(f"{path}:{rows.line_num}: expected the columns of the header, found {row!r}.")
            if row and row[columns[0]]:
                yield row[columns[0]], row[columns[1]]
    except csv.Error as problem:
        raise DataError(f"{path}:{rows.line_num}: {problem}. Correct the row.") from None


def _header(line: str) -> tuple[str, tuple[int, ...]]:
    """The separator and the places of item and title; no places where the line is not a header."""
    for separator in SEPARATORS:
        names = [plain_name(name) for name in next(csv.reader([line], delimiter=separator), [])]
        places = [
            next((names.index(name) for name in ITEM_COLUMNS[role].split() if name in names), -1)
            for role in ("item", "title")
        ]
        if min(places) >= 0:
            return separator, tuple(places)
    return "", ()


def _pairs(path: Path, lines: list[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines, start=1):
        item, tab, title = line.partition("\t")
        if line and not (item and tab and title):
            raise DataError(f"{path}:{number}: expected an item id, a tab and its title, found {line!r}. {EXPECTED}")
        if line:
            yield item, title
