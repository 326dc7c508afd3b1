"""The graph of several domains and the waits of items: by hand, by a slow loop, and that targets shape neither."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.graph.domain_graph import build_domain_graph, build_intervals, training_inputs
from lightgc2n.graph.sequential import Edges
from tests.graph import logs

DAY = 86_400 * 1_000_000
DOMAINS = (Domain("A", 0, 10), Domain("B", 10, 20))
MIXED = st.lists(st.lists(st.integers(0, 19), max_size=8), min_size=1, max_size=4)


def training_of(*rows: list[int], days: Sequence[Sequence[float]] | None = None) -> Training:
    """Account k has the mixed log rows[k]."""
    train = replace(logs.training_of(rows, items=20), domains=DOMAINS)
    return (
        train
        if days is None
        else replace(train, times=np.array([int(d * DAY) for row in days for d in row], dtype=np.int64))
    )


def pairs(edges: Edges) -> set[tuple[int, int]]:
    rows = np.repeat(np.arange(len(edges.offsets) - 1), np.diff(edges.offsets))
    assert len(set(zip(rows, edges.columns, strict=True))) == len(rows), "each edge once"
    return {(int(row), int(column)) for row, column in zip(rows, edges.columns, strict=True)}


def test_the_edges_of_one_log_by_hand() -> None:
    """A0 A1 A0 in one domain and B0 (item 10) between them; the last event, A5, is asked and never shown."""
    actual = pairs(build_domain_graph(training_of([0, 10, 1, 0, 5]), "successor", released_loops=True))
    account = 20
    held = {(account, item) for item in (0, 1, 10)}
    assert actual == {*held, *((item, row) for row, item in held), (0, 1), (1, 0), (0, 0), (1, 1), (account, account)}


@pytest.mark.parametrize(
    ("direction", "expected"),
    [("successor", {(3, 4)}), ("predecessor", {(4, 3)}), ("both", {(3, 4), (4, 3)})],
)
def test_directions(direction: str, expected: set[tuple[int, int]]) -> None:
    actual = pairs(build_domain_graph(training_of([3, 4, 10]), direction))
    assert {(row, column) for row, column in actual if row < 20 and column < 20 and row != column} == expected


def test_every_node_hears_itself_unless_the_release_is_wanted() -> None:
    train = training_of([3, 4, 10], [])
    assert {(node, node) for node in range(22)} <= pairs(build_domain_graph(train, "both"))
    released = pairs(build_domain_graph(train, "both", released_loops=True))
    assert {row for row, column in released if row == column} == {3, 20}  # nothing shown follows 4; account 1 is empty


@given(MIXED, st.booleans())
def test_steps_are_those_of_a_loop(rows: list[list[int]], apart: bool) -> None:
    train = training_of(*rows)
    if apart:
        train = replace(train, domain_targets=np.full((len(rows), 2), -1, dtype=np.int32))
    expected, held = set(), set()
    for account, row in enumerate(rows):
        shown = row if apart else row[:-1]
        held |= {(20 + account, item) for item in shown}
        for domain in DOMAINS:
            own = [item for item in shown if domain.start <= item < domain.stop]
            expected |= set(pairwise(own))
    loops = {(node, node) for node in range(20 + len(rows))}
    both_ways = held | {(item, account) for account, item in held}
    assert pairs(build_domain_graph(train, "successor")) == expected | both_ways | loops


def test_what_is_only_a_target_shapes_nothing() -> None:
    """7 and 17 are the last events of their logs, and stand nowhere else."""
    train = training_of([1, 11, 2, 7], [3, 12, 17], days=[[0, 1, 2, 9], [0, 1, 30]])
    actual = pairs(build_domain_graph(train, "both"))
    assert {row for row, column in actual if column in (7, 17)} == {7, 17}  # themselves alone
    changed = training_of([1, 11, 2, 8], [3, 12, 18], days=[[0, 1, 2, 80], [0, 1, 70]])
    first, second = build_intervals(train, 366), build_intervals(changed, 366)
    assert first is not None
    assert second is not None
    for name in ("offsets", "columns", "weights"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_waits_by_hand() -> None:
    """Item 1 is followed by 2 after 0 days, by 3 after half a day and by 2 after 500: buckets 0, 1 and the last."""
    train = training_of([1, 11, 2, 5], [1, 3, 5], [1, 12, 2, 5], days=[[4, 4, 4, 5], [0, 0.5, 9], [0, 7, 500, 501]])
    actual = build_intervals(train, 366)
    assert actual is not None
    dense = np.zeros((20, 366))
    dense[np.repeat(np.arange(20), np.diff(actual.offsets)), actual.columns] = actual.weights
    assert dense[1, [0, 1, 365]].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert dense.sum(axis=1).tolist() == pytest.approx([float(item == 1) for item in range(20)])


@given(MIXED, st.integers(0, 10_000))
def test_a_shift_of_all_times_changes_no_wait(rows: list[list[int]], shift: int) -> None:
    days = [[float(place**2) for place in range(len(row))] for row in rows]
    later = [[day + shift for day in row] for row in days]
    first, second = (build_intervals(training_of(*rows, days=when), 366) for when in (days, later))
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.columns, second.columns)
    np.testing.assert_array_equal(first.weights, second.weights)


def test_without_times_there_are_no_waits() -> None:
    assert build_intervals(training_of([1, 2, 3]), 366) is None


def test_all_events_are_inputs_where_targets_are_separate() -> None:
    train = training_of([1, 11, 2])
    assert sorted(training_inputs(train).events.tolist()) == [1, 11]
    apart = replace(train, domain_targets=np.array([[3, 13]], dtype=np.int32))
    assert sorted(training_inputs(apart).events.tolist()) == [1, 2, 11]
