"""Random numbers of a part of a table are those of the whole table."""

from dataclasses import replace

import pytest
import torch

from lightgc2n.graph.sequential import Rows
from lightgc2n.layers import parts_of_tables
from lightgc2n.layers.parts_of_tables import dropout_of_targets, xavier_uniform
from tests.models.small import one_batch


@pytest.mark.parametrize("step", [1, 2, 3, 11])
@pytest.mark.parametrize("at_once", [3, 4, 1000])
def test_every_worker_draws_the_rows_of_the_whole_table(
    step: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_of_tables, "ROWS_AT_ONCE", at_once)
    whole = torch.empty(11, 4)
    torch.manual_seed(2)
    xavier_uniform(whole, None)
    following = torch.rand(1)
    for first in range(step):
        part = torch.full((len(range(first, 11, step)), 4), torch.nan)
        torch.manual_seed(2)
        xavier_uniform(part, Rows(first, step, 11))
        assert torch.equal(part, whole[first::step])
        assert torch.equal(torch.rand(1), following)


def test_the_mask_of_a_part_is_that_of_the_whole_batch() -> None:
    batch, vectors = one_batch(), torch.rand(len(one_batch().at), 6)
    torch.manual_seed(4)
    expected = dropout_of_targets(vectors, batch, 0.3, True)
    assert (expected == 0).any()
    for places in (torch.arange(0, len(vectors), 2), torch.arange(0), torch.tensor([5])):
        own = {"at": batch.at[places], "share": batch.share[places], "places": places}
        part = replace(batch, **own, whole=torch.tensor([len(vectors), 0]))
        torch.manual_seed(4)
        assert torch.equal(dropout_of_targets(vectors[places], part, 0.3, True), expected[places])
        assert torch.equal(dropout_of_targets(vectors[places], part, 0.3, False), vectors[places])
