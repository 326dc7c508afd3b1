"""The sequential graph (Eq. 2), by hand."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.graph.sequential import Edges, build_graph, graph_from, grouped
from tests.graph.logs import LOGS, training_of
from tests.worlds import dataset_of

# Training: a p q p q, b p q r, c q p; the last two events of each are for validation and test, s is nobody's.
DATA = dataset_of([("a", "p q p q r p"), ("b", "p q r q s"), ("c", "q p q p")], items="p q r s")
P, Q, R, S = range(4)
GRAPH = build_graph(split_dataset(DATA, SplitConfig()).train)


def entries(edges: Edges) -> dict[tuple[int, int], float]:
    """(row, column) -> weight."""
    rows = np.repeat(np.arange(len(edges.offsets) - 1), np.diff(edges.offsets))
    keys = [(int(row), int(column)) for row, column in zip(rows, edges.columns, strict=True)]
    assert len(set(keys)) == len(keys), "an edge stands twice"
    return dict(zip(keys, edges.weights.tolist(), strict=True))


def close(actual: dict[tuple[int, int], float], expected: dict[tuple[int, int], float]) -> bool:
    return actual.keys() == expected.keys() and all(abs(actual[key] - expected[key]) < 1e-6 for key in actual)


def test_an_account_holds_each_of_its_training_items_once() -> None:
    # p and q are held by three accounts, r by b alone; a and c hold two items, b three. Weight 1 / √(both degrees).
    two_three, three_three, three_one = 6**-0.5, 9**-0.5, 3**-0.5
    expected = {(0, P): two_three, (0, Q): two_three, (2, P): two_three, (2, Q): two_three}
    expected |= {(1, P): three_three, (1, Q): three_three, (1, R): three_one}
    assert close(entries(GRAPH.items_of_account), expected)


def test_items_see_the_same_edges_from_the_other_side() -> None:
    turned = {(item, account): weight for (account, item), weight in entries(GRAPH.items_of_account).items()}
    assert entries(GRAPH.accounts_of_item) == turned


def test_an_item_receives_from_the_item_before_it() -> None:
    # Steps p→q (three times, one edge), q→p, q→r. The row receives: q from p; p from q; r from q.
    # q is sent from twice, so its edges weigh 1 / √(1 · 2); a's step q→r and b's r→q come after the training events.
    assert close(entries(GRAPH.items_before_item), {(Q, P): 1.0, (P, Q): 2**-0.5, (R, Q): 2**-0.5})


def test_a_sequence_ends_where_the_next_begins() -> None:
    graph = build_graph(training_of([[0, 1], [2, 3], [], [4]], items=5))
    assert entries(graph.items_before_item).keys() == {(1, 0), (3, 2)}
    assert (graph.accounts, graph.items) == (4, 5)


def test_a_graph_of_inputs_leaves_out_the_last_event_of_each_sequence() -> None:
    # Inputs: a p q p, b p q, c q. The steps p→q and q→p are left, each sent once, and c holds q alone.
    graph = build_graph(split_dataset(DATA, SplitConfig()).train, "inputs")
    assert entries(graph.items_of_account).keys() == {(0, P), (0, Q), (1, P), (1, Q), (2, Q)}
    assert close(entries(graph.items_before_item), {(Q, P): 1.0, (P, Q): 1.0})


def test_test_and_validation_events_do_not_shape_the_graph() -> None:
    other = dataset_of([("a", "p q p q s s"), ("b", "p q r s r"), ("c", "q p r r")], items="p q r s")
    again = build_graph(split_dataset(other, SplitConfig()).train)
    for name, array in GRAPH.arrays().items():
        assert array.tolist() == again.arrays()[name].tolist()


@given(st.lists(st.integers(0, 5), max_size=30))
def test_grouped_places_are_those_of_a_stable_sort(numbers: list[int]) -> None:
    order, offsets = grouped(np.array(numbers, dtype=np.int64), 6)
    assert order.tolist() == np.argsort(numbers, kind="stable").tolist()
    assert offsets.tolist() == [sum(number < below for number in numbers) for below in range(7)]


@given(LOGS)
def test_edges_are_those_of_a_slow_loop(logs: list[list[int]]) -> None:
    graph = build_graph(training_of(logs))
    held = {(account, item) for account, log in enumerate(logs) for item in log}
    steps = {(after, before) for log in logs for before, after in pairwise(log)}
    for edges, pairs in ((graph.items_of_account, held), (graph.items_before_item, steps)):
        degrees = {
            (row, column): sum(r == row for r, _ in pairs) * sum(c == column for _, c in pairs) for row, column in pairs
        }
        assert close(entries(edges), {pair: degree**-0.5 for pair, degree in degrees.items()})


@given(LOGS)
def test_a_saved_graph_is_the_same(logs: list[list[int]]) -> None:
    graph = build_graph(training_of(logs))
    again = graph_from(graph.arrays())
    for name in ("items_of_account", "accounts_of_item", "items_before_item"):
        assert entries(getattr(again, name)) == entries(getattr(graph, name))
        assert getattr(again, name).width == getattr(graph, name).width
