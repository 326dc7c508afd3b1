"""Owner, group and access rights of a file or folder that replaces another."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from lightgc2n.errors import OutputError


def keep_access(old: Path, new: Path) -> None:
    """Copy owner, group and mode from `old` to `new`. An owner or group that this user may not set is ignored."""
    attributes = old.stat()
    _set_owner(new, attributes)
    new.chmod(stat.S_IMODE(attributes.st_mode))


def keep_access_below(old: Path, new: Path) -> None:
    """Copy them for a folder and every entry of the same name in it. New entries get the owner of the folder."""
    if not old.is_dir():
        return
    attributes = old.stat()
    for path in new.rglob("*"):
        counterpart = old / path.relative_to(new)
        if counterpart.exists() and not counterpart.is_symlink():
            keep_access(counterpart, path)
        else:
            _set_owner(path, attributes)
    keep_access(old, new)


def refuse_read_only(folder: Path) -> None:
    """Raise an error when this user may not replace a folder, because its files cannot be moved or removed."""
    for place, _, _ in os.walk(folder):
        if not os.access(place, os.W_OK | os.X_OK):
            mode = stat.S_IMODE(Path(place).stat().st_mode)
            raise OutputError(
                f"{place} is not writable for this user (mode {mode:04o}), so {folder} is not changed. "
                f"If it is yours, run: chmod u+w {place}"
            )


def mode_while_written(old: Path) -> int:
    """Return the mode of the temporary file or folder that replaces `old`: no wider than the mode of `old`."""
    with suppress(OSError):
        attributes = old.stat()
        return stat.S_IMODE(attributes.st_mode) & 0o777 | (0o700 if stat.S_ISDIR(attributes.st_mode) else 0o600)
    return 0o777


def _set_owner(path: Path, attributes: os.stat_result) -> None:
    own = path.stat()
    for now, wanted, ids in (
        (own.st_uid, attributes.st_uid, (attributes.st_uid, -1)),
        (own.st_gid, attributes.st_gid, (-1, attributes.st_gid)),
    ):
        if now != wanted:
            with suppress(PermissionError):
                os.chown(path, *ids)
