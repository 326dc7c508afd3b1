"""The columns of a table: which column has which role, and ids as integers."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt
import polars as pl

from lightgc2n.data.formats.row_filter import FILTER, WHERE, RowFilter
from lightgc2n.errors import DataError, option

REQUIRED = ("account", "item")
# Compared without case, blanks and punctuation; the first name in the list wins if a table has several.
USUAL_NAMES = {
    "account": "account accountid household householdid customer customerid user userid uid reviewer reviewerid "
    "visitor visitorid subscriber subscriberid",
    "item": "item itemid movie movieid video videoid program programid content contentid title titleid product "
    "productid asin parentasin sku article articleid track trackid song songid book bookid isbn iid",
    "time": "timestamp ts time datetime unixreviewtime eventtime createdat date watchedat",
    "domain": "domain domainid",
    "member": "member memberid person personid profile profileid",
    "title": "title itemtitle movietitle producttitle programtitle itemname productname",
}
ROLES = tuple(USUAL_NAMES)
Codes = npt.NDArray[np.int32]
HEADER = option("--columns", "header=")


def find_columns(
    names: Sequence[str], chosen: Mapping[str, str], where: str, row_filter: RowFilter | None = None
) -> dict[str, str]:
    """Return the column name of each role that the table has; account and item are required.

    Args:
        chosen: the columns that the caller has named, by role.
        where: file and line of the header, for errors.
        row_filter: its column gets the role `filter`; it may have another role too.
    """
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise DataError(
            f"{where}: the header names the column {repeated[0]!r} more than once. Rename one of them, "
            f"or give {HEADER} with a name for each column."
        )
    plain = {plain_name(name): name for name in reversed(names)}
    columns = {}
    for role, usual in USUAL_NAMES.items():
        if role in chosen:
            if chosen[role] not in names:
                raise DataError(no_column(chosen[role], names, where, _of(role)))
            columns[role] = chosen[role]
        elif match := next((plain[name] for name in usual.split() if name in plain), None):
            columns[role] = match
    if "title" not in chosen and columns.get("title") == columns.get("item"):
        columns.pop("title", None)  # titles serve as item ids
    for role in REQUIRED:
        if role not in columns:
            raise DataError(
                f"{where}: no column looks like the {role}. Found: {listed(names)}. "
                f"Name it with {_of(role)}, or give {HEADER} if the file has no header."
            )
    for name in set(columns.values()):
        roles = [role for role, column in columns.items() if column == name]
        if len(roles) > 1:
            raise DataError(
                f"{where}: the column {name!r} would be both {roles[0]} and {roles[1]}. "
                f"Name another with {_of(roles[0])} or {_of(roles[1])}."
            )
    if row_filter is not None and row_filter.column not in names:
        raise DataError(no_column(row_filter.column, names, where, WHERE))
    return columns if row_filter is None else columns | {FILTER: row_filter.column}


def no_column(name: str, names: Sequence[str], where: str, wanted_by: str) -> str:
    """Return an error sentence that names the missing column and suggests the nearest one."""
    lower = {one.casefold(): one for one in reversed(names)}
    near = get_close_matches(name.casefold(), lower, n=1)
    hint = f" Did you mean {lower[near[0]]!r}?" if near else ""
    return f"{where}: no column {name!r} for {wanted_by}.{hint} Found: {listed(names)}."


def _of(role: str) -> str:
    """The option that names the column of a role."""
    return option(f"--{role}-column", f"{role}=")


def plain_name(name: str) -> str:
    """Return the name without case, blanks and punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def listed(names: Sequence[str]) -> str:
    """Return the first names for a message, and how many more there are."""
    shown = [name if len(name) <= 40 else name[:40] + "…" for name in names[:12]]
    more = f" and {len(names) - 12:,} more" if len(names) > 12 else ""
    return ", ".join(repr(name) for name in shown) + more


class Coder:
    """Numbers ids in order of first appearance."""

    def __init__(self, known: Sequence[str] = ()) -> None:
        self._categories = pl.Categories.random("ids")
        # Polars drops categories that no series refers to; this series keeps all of them.
        self._anchor = pl.Series(known, dtype=pl.String).cast(pl.Categorical(self._categories))

    def codes(self, ids: pl.Series) -> Codes:
        """Return the number of each id, -1 for null."""
        numbers = ids.cast(pl.Categorical(self._categories)).to_physical().cast(pl.Int32)
        return numbers.fill_null(-1).to_numpy()

    def ids(self) -> list[str]:
        return list(self._categories.to_series().cast(pl.String))
