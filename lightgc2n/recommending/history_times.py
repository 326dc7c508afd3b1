"""Parses the times of a given history into microseconds since 1970."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.errors import SettingError

Times = Sequence[str] | Sequence[int]
EPOCH = datetime(1970, 1, 1)
# The years 1900 to 2262, as for imported logs: values in another unit fall outside.
EARLIEST, LATEST = -2_208_988_800_000_000, 9_214_646_400_000_000


def read_times(times: Times) -> Longs:
    """Microseconds of ISO dates, in the log's own time zone, or UTC if a zone is given; integers are microseconds."""
    return np.array([_microseconds(time) for time in times], dtype=np.int64)


def _microseconds(time: str | int) -> int:
    try:
        microseconds = time if type(time) is int else _parse(str(time))
    except (ValueError, OverflowError):
        microseconds = LATEST + 1
    if not EARLIEST <= microseconds <= LATEST:
        raise SettingError(
            f"times: expected ISO dates like 2024-05-01 20:15, or microseconds since 1970, "
            f"within the years 1900 to 2262; found {str(time)[:40]!r}."
        )
    return microseconds


def _parse(text: str) -> int:
    read = datetime.fromisoformat(text)
    if read.tzinfo is not None:
        read = read.astimezone(UTC).replace(tzinfo=None)
    return (read - EPOCH) // timedelta(microseconds=1)
