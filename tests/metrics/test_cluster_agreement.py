"""How well people are told apart: by hand, against another library, and what must hold for any grouping."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgc2n.errors import DataError
from lightgc2n.metrics.cluster_agreement import (
    PeopleMeasures,
    adjusted_rand,
    matching,
    measure_people,
    overlaps,
    people_summary,
    reliability,
)

GROUPINGS = st.integers(1, 25).flatmap(
    lambda size: st.tuples(*[st.lists(st.integers(0, 4), min_size=size, max_size=size)] * 2)
)


def measured(actual: str, true: str, people: list[int] | None = None) -> dict[str, float]:
    """One account, a letter an event; `?` where the true person is unknown."""
    member = np.array([-1 if letter == "?" else ord(letter) for letter in true])
    account = np.zeros(len(member), dtype=np.int64)
    counts = None if people is None else np.array(people)
    columns = measure_people(np.array([ord(letter) for letter in actual]), member, account, counts).columns
    return {name: float(column[0]) for name, column in columns.items()}


def test_long_logs_are_scored_like_short_ones() -> None:
    table = np.array([[[4, 1], [1, 2]]])
    assert adjusted_rand(1000 * table) == pytest.approx(adjusted_rand(100_000 * table), abs=1e-3)


def test_the_adjusted_rand_index_by_hand() -> None:
    # Six events have 15 pairs. Found joins 3 + 3 = 6, truth joins 6 (aaaa) + 1 (bb) = 7, both join 3 + 1 = 4.
    expected = 6 * 7 / 15
    assert measured("xxxyyy", "aaaabb")["ARI"] == pytest.approx((4 - expected) / ((6 + 7) / 2 - expected))


def test_mutual_information_by_hand() -> None:
    # Overlaps of the same groupings: 3, 1 and 2 of 6 events.
    information = 3 / 6 * math.log(3 / 6 / (3 / 6 * 4 / 6)) + 1 / 6 * math.log(1 / 6 / (3 / 6 * 4 / 6))
    information += 2 / 6 * math.log(2 / 6 / (3 / 6 * 2 / 6))
    actual, true = math.log(2), -(4 / 6 * math.log(4 / 6) + 2 / 6 * math.log(2 / 6))
    assert measured("xxxyyy", "aaaabb")["NMI"] == pytest.approx(information / ((actual + true) / 2))


def test_the_match_is_one_to_one() -> None:
    # x holds 3 of a and 2 of b, y holds 2 of a: x to b and y to a agrees on 4, x to a on 3 and leaves y to nobody.
    actual = measured("xxxxxyy", "aaabbaa")
    assert actual["accuracy"] == pytest.approx(4 / 7)
    assert actual["least served"] == pytest.approx(2 / 5)  # a: 2 of 5; b: 2 of 2


def test_counts_and_single_accounts_by_hand() -> None:
    split = measured("xy", "aa")
    assert (split["count error"], split["exact count"], split["singles split"], split["ARI"]) == (1, 0, 1, 0)
    whole = measured("xx", "aa")
    assert (whole["count error"], whole["exact count"], whole["singles split"], whole["ARI"]) == (0, 1, 0, 1)
    assert (whole["NMI"], whole["accuracy"], whole["least served"]) == (1, 1, 1)
    assert math.isnan(whole["shared ARI"])
    joined = measured("xxxx", "abbc")
    assert (joined["count error"], joined["exact count"], joined["accuracy"], joined["least served"]) == (2, 0, 0.5, 0)
    assert math.isnan(joined["singles split"])
    assert joined["shared ARI"] == joined["ARI"] == 0


def test_a_guest_may_be_left_out_of_the_count() -> None:
    actual = measured("xxxx", "aaag", people=[1])
    assert (actual["count error"], actual["singles split"], actual["accuracy"]) == (0, 0, 0.75)


def test_events_of_unknown_people_count_for_nothing() -> None:
    assert measured("xxyz", "aab?") == pytest.approx(measured("xxy", "aab"), nan_ok=True)


def test_accounts_do_not_mix() -> None:
    """The same names in two accounts are different people, and accounts may stand in any order."""
    actual, true = np.array([0, 1, 0, 0]), np.array([5, 6, 5, 6])
    columns = measure_people(actual, true, np.array([9, 9, 3, 3]))
    assert columns.account.tolist() == [3, 9]
    assert columns.events.tolist() == [2, 2]
    assert columns.columns["ARI"].tolist() == [0.0, 1.0]
    assert columns.columns["accuracy"].tolist() == [0.5, 1.0]
    assert columns.columns["exact count"].tolist() == [0.0, 1.0]


@given(GROUPINGS)
def test_agrees_with_scikit_learn(groupings: tuple[list[int], list[int]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    actual, true = map(np.array, groupings)
    columns = measure_people(actual, true, np.zeros(len(actual), dtype=np.int64)).columns
    assert columns["ARI"][0] == pytest.approx(metrics.adjusted_rand_score(true, actual), abs=1e-9)
    assert columns["NMI"][0] == pytest.approx(metrics.normalized_mutual_info_score(true, actual), abs=1e-9)


@given(st.integers(1, 4).flatmap(lambda size: st.lists(st.tuples(st.integers(0, size), st.integers(0, 3)), min_size=1)))
def test_no_other_match_agrees_on_more(pairs: list[tuple[int, int]]) -> None:
    actual, true = np.array(pairs).T
    (table,) = overlaps(np.zeros(len(actual), dtype=np.int64), actual, true)
    match = matching(table[None])[0]
    used = match[match >= 0]
    assert len(set(used.tolist())) == len(used)
    square = np.zeros((max(table.shape),) * 2, dtype=int)
    square[: table.shape[0], : table.shape[1]] = table
    best = max(sum(square[range(len(square)), order]) for order in itertools.permutations(range(len(square))))
    assert sum(table[one, person] for one, person in enumerate(match) if person >= 0) == best


@given(GROUPINGS, st.permutations(range(5)))
def test_names_mean_nothing(groupings: tuple[list[int], list[int]], names: list[int]) -> None:
    actual, true = map(np.array, groupings)
    account = np.zeros(len(actual), dtype=np.int64)
    renamed = measure_people(np.array(names)[actual], true, account).columns
    for name, column in measure_people(actual, true, account).columns.items():
        if name != "least served":  # of equally good matches either may be taken
            assert renamed[name] == pytest.approx(column, nan_ok=True), name


def test_the_exact_match_is_for_few_people() -> None:
    everybody = np.arange(20)
    with pytest.raises(DataError, match="at most 12 can be matched"):
        measure_people(everybody, everybody, np.zeros(20, dtype=np.int64))


def test_a_summary_weighs_accounts_or_events() -> None:
    columns = {"ARI": np.array([1.0, 0.0]), "singles split": np.array([np.nan, 0.5]), "none": np.full(2, np.nan)}
    actual = people_summary(PeopleMeasures(np.array([0, 1]), np.array([30, 10]), columns))
    assert actual["ARI"]["accounts"]["value"] == 0.5
    assert actual["ARI"]["events"]["value"] == 0.75
    assert actual["singles split"]["accounts"] == {"value": 0.5, "low": 0.5, "high": 0.5}
    assert "none" not in actual


def test_an_interval_of_a_summary_is_as_wide_as_theory_says() -> None:
    """Half the accounts at 0 and half at 1: the mean of n has the standard error 0.5 / sqrt(n)."""
    columns = {"ARI": (np.arange(400) % 2).astype(float)}
    actual = people_summary(PeopleMeasures(np.arange(400), np.full(400, 7), columns))["ARI"]
    assert actual["accounts"]["high"] - actual["accounts"]["low"] == pytest.approx(2 * 1.96 * 0.5 / 20, rel=0.1)
    assert actual["events"] == pytest.approx(actual["accounts"])


def test_reliability_by_hand() -> None:
    chances = np.array([[0.72, 0.28], [0.78, 0.22], [0.4, 0.6], [1.0, 0.0]])
    told = reliability(chances, np.array([1, 1, 2, 1]), np.array([1, 2, 2, 1]))
    assert told["accounts"] == 4
    assert told["confidence"] == pytest.approx((0.72 + 0.78 + 0.6 + 1) / 4)
    assert told["right"] == 0.75
    # The eighth tenth is sure by 0.75 and right by 0.5, for two accounts; then 0.6 and 1, 1 and 1.
    assert told["calibration error"] == pytest.approx((2 * 0.25 + 0.4 + 0) / 4)
    assert told["log loss"] == pytest.approx(-np.log([0.72, 0.22, 0.6, 1]).mean())
    assert [line["above"] for line in told["tenths"]] == [0.6, 0.7, 0.9]
    assert told["tenths"][1] == {"above": 0.7, "accounts": 2, "confidence": pytest.approx(0.75), "right": 0.5}


def test_more_people_than_are_offered_are_the_most_that_are() -> None:
    told = reliability(np.array([[0.4, 0.6]]), np.array([2]), np.array([7]))
    assert told["right"] == 0
    assert told["log loss"] == pytest.approx(-np.log(0.6))
