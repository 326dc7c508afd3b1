"""Two runs on the same accounts: the difference, its interval, and when it decides."""

from dataclasses import replace

import numpy as np
import pytest

from lightgc2n.metrics.paired_tests import Difference, decided, holm
from lightgc2n.paper.findings import Comparison, comparisons
from tests.paper.example import ACCOUNTS, Key, grouped, run


def difference(low: float, high: float, chance: float) -> Difference:
    return Difference("E", "last", "a", "b", (low + high) / 2, low, high, chance, 1, True)


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.04: times 3, 2, 1 is 0.03, 0.04, 0.04.
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    # 0.03 * 2 = 0.06, and the larger 0.04 * 1 never falls below it.
    assert holm([0.03, 0.04]) == pytest.approx([0.06, 0.06])
    assert holm([]) == []


def test_a_difference_decides_where_interval_and_chance_agree() -> None:
    assert decided([difference(0.1, 0.3, 0.001), difference(-0.3, -0.1, 0.001)]) == [1, -1]
    assert decided([difference(-0.1, 0.3, 0.001), difference(0.1, 0.3, 0.2)]) == [0, 0]
    # Asked once, 0.03 is enough; asked twice, the smaller counts double.
    assert decided([difference(0.1, 0.3, 0.03)]) == [1]
    assert decided([difference(0.1, 0.3, 0.03)] * 2) == [0, 0]


def test_a_difference_by_hand() -> None:
    # 200 of 400 accounts at rank 1 against 120: MRR@20 of 50 % and 30 %; the 80 accounts between them decide.
    contest = Comparison("E", "last", {"a": [run(skill=0.5)], "b": [run("hrnn", 0.3)]})
    actual = contest.difference("a", "b")
    assert actual.value == pytest.approx(20)
    # The difference is 1 for 80 of 400 accounts: its standard error is sqrt(0.2 * 0.8 / 400) = 2 points.
    assert actual.low == pytest.approx(20 - 1.96 * 2, abs=1)
    assert actual.high == pytest.approx(20 + 1.96 * 2, abs=1)
    assert actual.p < 0.001
    assert actual.paired
    assert str(actual).startswith("MRR@20 of a is 20.00 points above b on E (95 %: +1")
    assert "95 %: −" in str(contest.difference("b", "a"))


def test_runs_with_other_targets_are_compared_unpaired() -> None:
    other = run("hrnn", 0.3)
    other = replace(other, rank=other.rank[:300], owner=other.owner[:300])
    actual = Comparison("E", "last", {"a": [run(skill=0.5)], "b": [other]}).difference("a", "b")
    # 120 of 300 at rank 1: 50 % against 40 %; errors sqrt(.25/400) and sqrt(.24/300) add to 3.8 points.
    assert not actual.paired
    assert actual.value == pytest.approx(10)
    assert actual.high - actual.low == pytest.approx(2 * 1.96 * 3.77, abs=1.5)
    assert actual.p == pytest.approx(0.008, abs=0.006)
    assert "other targets" in str(actual)


def test_seeds_that_differ_widen_the_interval() -> None:
    # The same accounts are found by all seeds, but more of them by some: the mean is as before, and less sure.
    steady, shaky = [run(skill=0.5)] * 3, [run(skill=0.4), run(skill=0.5), run(skill=0.6)]
    contest = Comparison("E", "last", {"steady": steady, "shaky": shaky, "b": [run("hrnn", 0.3)] * 3})
    sure, unsure = contest.difference("steady", "b"), contest.difference("shaky", "b")
    assert sure.value == pytest.approx(unsure.value)
    assert unsure.high - unsure.low > 1.5 * (sure.high - sure.low)


def test_honest_contests_come_first() -> None:
    results = {Key("E", "windows", "a"): [run()], Key("V", "last", "a"): [run()], Key("V", "last", "b"): []}
    actual = comparisons(grouped(results))
    assert [(contest.dataset, contest.honest) for contest in actual] == [("V", True), ("E", False)]
    assert list(actual[0].runs) == ["a"]


def test_accounts_are_resampled_not_targets() -> None:
    # Ten targets an account that all rank alike say no more than one.
    once = Comparison("E", "last", {"a": [run(skill=0.5)], "b": [run(skill=0.3)]}).difference("a", "b")
    tenfold = [
        replace(actual, rank=np.repeat(actual.rank, 10), owner=np.repeat(np.arange(ACCOUNTS), 10))
        for actual in (run(skill=0.5), run(skill=0.3))
    ]
    again = Comparison("E", "last", {"a": tenfold[:1], "b": tenfold[1:]}).difference("a", "b")
    assert (again.low, again.high) == pytest.approx((once.low, once.high))
