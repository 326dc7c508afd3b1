"""Assign the columns of a table to roles, by their names or by the caller's choice."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from lightgc2n.errors import DataError

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
}
ROLES = tuple(USUAL_NAMES)


def find_columns(names: Sequence[str], chosen: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the column name of each role that the table has; account and item are required.

    Args:
        chosen: the columns that the caller has named, by role.
        where: file and line of the header, for errors.
    """
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise DataError(
            f"{where}: the header names the column {repeated[0]!r} more than once. Rename one of them, "
            f"or give --columns with a name for each column."
        )
    plain = {_plain(name): name for name in reversed(names)}
    columns = {}
    for role, usual in USUAL_NAMES.items():
        if role in chosen:
            if chosen[role] not in names:
                raise DataError(f"{where}: no column {chosen[role]!r} for --{role}-column. Found: {listed(names)}.")
            columns[role] = chosen[role]
        elif match := next((plain[name] for name in usual.split() if name in plain), None):
            columns[role] = match
    for role in REQUIRED:
        if role not in columns:
            raise DataError(
                f"{where}: no column looks like the {role}. Found: {listed(names)}. "
                f"Name it with --{role}-column, or give --columns if the file has no header."
            )
    for name in set(columns.values()):
        roles = [role for role, column in columns.items() if column == name]
        if len(roles) > 1:
            raise DataError(
                f"{where}: the column {name!r} would be both {roles[0]} and {roles[1]}. "
                f"Name another with --{roles[0]}-column or --{roles[1]}-column."
            )
    return columns


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def listed(names: Sequence[str]) -> str:
    """Return the first names for a message, and how many more there are."""
    shown = [name if len(name) <= 40 else name[:40] + "…" for name in names[:12]]
    more = f" and {len(names) - 12:,} more" if len(names) > 12 else ""
    return ", ".join(repr(name) for name in shown) + more
