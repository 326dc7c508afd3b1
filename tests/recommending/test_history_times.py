"""Times of a history, however they are written."""

import pytest

from lightgc2n.errors import SettingError
from lightgc2n.recommending.queries import read_times

NINE = 1_714_554_000_000_000  # 2024-05-01 09:00, 19,844 days and nine hours after 1970


@pytest.mark.parametrize(
    ("given", "microseconds"),
    [
        (NINE, NINE),
        ("2024-05-01 09:00", NINE),
        ("2024-05-01T09:00:00.000001", NINE + 1),
        ("2024-05-01T11:00:00+02:00", NINE),
        ("2024-05-01T09:00Z", NINE),
        ("2024-05-01", NINE - 9 * 3_600_000_000),
        ("1969-12-31 23:59:59", -1_000_000),
        (0, 0),
    ],
)
def test_what_is_read(given: str | int, microseconds: int) -> None:
    assert read_times([given]).tolist() == [microseconds]  # type: ignore[list-item]


@pytest.mark.parametrize("given", ["yesterday", "", "2024-13-01", 10**18, "1714554000", "0001-01-01T00:00+10:00", True])
def test_what_is_refused(given: object) -> None:
    with pytest.raises(SettingError, match="expected ISO dates like"):
        read_times([given])  # type: ignore[list-item]
