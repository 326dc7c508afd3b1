import pytest

from lightgc2n.data.formats.columns import find_columns
from lightgc2n.errors import DataError


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["user_id", "item_id"], {"account": "user_id", "item": "item_id"}),
        (["Timestamp", "ASIN", "Reviewer ID"], {"account": "Reviewer ID", "item": "ASIN", "time": "Timestamp"}),
        (["user", "account", "movie", "item"], {"account": "account", "item": "item"}),
        (["household-id", "videoId", "ts"], {"account": "household-id", "item": "videoId", "time": "ts"}),
        (
            ["account_id", "item_id", "timestamp", "domain", "member"],
            {"account": "account_id", "item": "item_id", "time": "timestamp", "domain": "domain", "member": "member"},
        ),
    ],
)
def test_usual_names(names: list[str], expected: dict[str, str]) -> None:
    assert find_columns(names, {}, "log:1") == expected


def test_a_told_column_wins() -> None:
    told = {"item": "title", "time": "when"}
    expected = {"account": "user", "item": "title", "time": "when"}
    assert find_columns(["user", "item", "title", "when"], told, "log:1") == expected


@pytest.mark.parametrize(
    ("names", "told", "message"),
    [
        (["a", "item"], {}, r"log:1: no column looks like the account. Found: 'a', 'item'.*account="),
        (["user", "b"], {}, r"log:1: no column looks like the item"),
        (["user", "item", "user"], {}, r"log:1: the header names the column 'user' more than once"),
        (["user", "item"], {"time": "when"}, r"log:1: no column 'when' for time=. Found: 'user', 'item'"),
        (["Device", "item"], {}, r"no column looks like the account"),
        (["user", "b"], {"item": "user"}, r"log:1: the column 'user' would be both account and item. Name another"),
        (["x" * 500] * 1 + [f"c{n}" for n in range(30)], {}, r"'x{40}…', 'c0', .* and 19 more"),
    ],
)
def test_refusals(names: list[str], told: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        find_columns(names, told, "log:1")
