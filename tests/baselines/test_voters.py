"""Whose items speak, by hand."""

from torch import Tensor, tensor

from lightgc2n.baselines.nais import HeldItems, RecentEvents, RecentItems
from lightgc2n.data.batches import Batch, training_batches
from lightgc2n.layers.holdings import Holdings
from tests.graph.logs import training_of

TRAIN = training_of([[5, 2, 5, 3, 1], [4, 4]], items=7)
ROW, PLACE = tensor([0, 0, 1]), tensor([3, 0, 0])
HISTORIES = Batch(tensor([1, -1, 0]), tensor([[6, 4, 6], [2, 0, 0], [0, 0, 0]]), tensor([3, 1, 0]))


def listed(speakers: tuple[Tensor, Tensor]) -> list[list[int]]:
    return [row[there].tolist() for row, there in zip(*speakers, strict=True)]


def test_recent_events() -> None:
    part, batch = RecentEvents(3), next(training_batches(TRAIN, 5))
    assert part.lengths(batch, ROW, PLACE).tolist() == [3, 1, 1]
    assert listed(part.at_places(batch, ROW, PLACE, 3)) == [[3, 5, 2], [5], [4]]  # the newest in front
    assert listed(part.whole(HISTORIES)) == [[6, 4, 6], [2], []]
    assert listed(RecentEvents(2).whole(HISTORIES)) == [[6, 4], [2], []]


def test_recent_items_vote_once() -> None:
    part, batch = RecentItems(4), next(training_batches(TRAIN, 5))
    assert listed(part.at_places(batch, ROW, PLACE, 4)) == [[2, 3, 5], [5], [4]]  # in the order of their numbers
    assert listed(part.whole(HISTORIES)) == [[4, 6], [2], []]


def test_held_items_are_those_of_training_and_of_the_history() -> None:
    part, batch = HeldItems(10, Holdings.of(TRAIN)), next(training_batches(TRAIN, 5))
    assert part.lengths(batch, ROW, PLACE).tolist() == [4, 4, 1]
    assert listed(part.at_places(batch, ROW, PLACE, 4)) == [[1, 2, 3, 5], [1, 2, 3, 5], [4]]
    assert listed(part.whole(HISTORIES)) == [[4, 6], [2], [1, 2, 3, 5]]
