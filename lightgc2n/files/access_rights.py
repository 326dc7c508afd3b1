"""Owner, group and access rights of a file or folder that replaces another."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from lightgc2n.errors import OutputError


def keep_access(old: Path, new: Path) -> None:
    """Give `new` the owner, group and access rights of `old`. An owner or group that this user may not give stays."""
    facts = old.stat()
    _give(new, facts)
    new.chmod(stat.S_IMODE(facts.st_mode))


def keep_access_below(old: Path, new: Path) -> None:
    """Do the same for a folder and everything in it, name by name. What is new there belongs to the folder's owner."""
    if not old.is_dir():
        return
    facts = old.stat()
    for path in new.rglob("*"):
        twin = old / path.relative_to(new)
        if twin.exists() and not twin.is_symlink():
            keep_access(twin, path)
        else:
            _give(path, facts)
    keep_access(old, new)


def refuse_read_only(folder: Path) -> None:
    """Raise an error when this user may not replace a folder: its files could be neither moved nor removed."""
    for place, _, _ in os.walk(folder):
        if not os.access(place, os.W_OK | os.X_OK):
            mode = stat.S_IMODE(Path(place).stat().st_mode)
            raise OutputError(
                f"{place} may not be written by this user (mode {mode:04o}), so {folder} stays as it is. "
                f"If it is yours, run: chmod u+w {place}"
            )


def mode_while_written(old: Path) -> int:
    """Return the mode for a file or folder that is being written to replace `old`: nobody else may read more of it."""
    with suppress(OSError):
        facts = old.stat()
        return stat.S_IMODE(facts.st_mode) & 0o777 | (0o700 if stat.S_ISDIR(facts.st_mode) else 0o600)
    return 0o777


def _give(path: Path, facts: os.stat_result) -> None:
    own = path.stat()
    for now, wanted, ids in (
        (own.st_uid, facts.st_uid, (facts.st_uid, -1)),
        (own.st_gid, facts.st_gid, (-1, facts.st_gid)),
    ):
        if now != wanted:
            with suppress(PermissionError):
                os.chown(path, *ids)
