"""Ranks by counting."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from lightgc2n.layers.ranking import rank_by_counting


def test_ranks_by_hand() -> None:
    scores = tensor([[0.1, 0.9, 0.5], [1.0, 1.0, 1.0], [2.0, 1.0, 1.0]])
    # second of three; three equal share (1 + 2 + 3) / 3; two equal share (2 + 3) / 2
    assert rank_by_counting(scores, tensor([2, 0, 1])).tolist() == [2.0, 2.0, 2.5]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
def test_ties_stand_at_their_mean_rank(values: list[int], data: st.DataObject) -> None:
    target = data.draw(st.integers(0, len(values) - 1))
    ordered = sorted(values, reverse=True)
    places = [place + 1 for place, value in enumerate(ordered) if value == values[target]]
    found = rank_by_counting(torch.tensor([values], dtype=torch.float64), tensor([target]))
    assert found.item() == sum(places) / len(places)
