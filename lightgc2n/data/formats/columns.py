"""Which column of a table is what, found by the usual names or told."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from lightgc2n.errors import DataError, option

REQUIRED = ("account", "item")
# Compared without case, blanks and punctuation; the earlier name wins where a table has several.
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
HEADER = option("--columns", "header=")


def find_columns(names: Sequence[str], told: Mapping[str, str], where: str) -> dict[str, str]:
    """The column name of each role that the table has; account and item are required.

    Args:
        told: roles whose column the caller has named.
        where: file and line of the header, for errors.
    """
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise DataError(
            f"{where}: the header names the column {repeated[0]!r} more than once. Rename one of them, "
            f"or give {HEADER} with a name for each column."
        )
    plain = {_plain(name): name for name in reversed(names)}
    found = {}
    for role, usual in USUAL_NAMES.items():
        if role in told:
            if told[role] not in names:
                near = get_close_matches(told[role], names, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise DataError(f"{where}: no column {told[role]!r} for {_of(role)}.{hint} Found: {listed(names)}.")
            found[role] = told[role]
        elif match := next((plain[name] for name in usual.split() if name in plain), None):
            found[role] = match
    for role in REQUIRED:
        if role not in found:
            raise DataError(
                f"{where}: no column looks like the {role}. Found: {listed(names)}. "
                f"Name it with {_of(role)}, or give {HEADER} if the file has no header."
            )
    for name in set(found.values()):
        roles = [role for role, column in found.items() if column == name]
        if len(roles) > 1:
            raise DataError(
                f"{where}: the column {name!r} would be both {roles[0]} and {roles[1]}. "
                f"Name another with {_of(roles[0])} or {_of(roles[1])}."
            )
    return found


def _of(role: str) -> str:
    """The option that names the column of a role."""
    return option(f"--{role}-column", f"{role}=")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def listed(names: Sequence[str]) -> str:
    """Return the first names for a message, and how many more there are."""
    shown = [name if len(name) <= 40 else name[:40] + "…" for name in names[:12]]
    more = f" and {len(names) - 12:,} more" if len(names) > 12 else ""
    return ", ".join(repr(name) for name in shown) + more
