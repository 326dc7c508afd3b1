"""The catalogue of a dataset: titles, categories, years and images of items, one JSON object per line.

Items without events are in it too: they are the new items. The numbering of items, which models see, does not depend on
the catalogue.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lightgc2n.errors import DataError

CATALOGUE = "catalogue.jsonl"
IMAGE = re.compile(r"(https?://|/)?[^\s:\"'<>\\]+(/[^\s\"'<>\\]*)?", re.ASCII)  # an address or a path


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
