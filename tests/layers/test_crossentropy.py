"""Cross-entropy without a table of logits says what the table says."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from lightgc2n.devices import CPU, DEVICES
from lightgc2n.layers.crossentropy import block_rows, linear_cross_entropy


def test_by_hand() -> None:
    # logits 0 and log 3 for the one query, whose target is the second class: its share is 3 / 4
    queries, classes = torch.tensor([[1.0]]), torch.tensor([[0.0], [torch.tensor(3.0).log()]])
    actual = linear_cross_entropy(queries, classes, torch.tensor([1]), torch.tensor([2.0]))
    assert_close(actual, 2 * torch.tensor(4 / 3).log())


@settings(max_examples=25)
@given(
    queries=st.integers(1, 9),
    classes=st.integers(1, 7),
    seed=st.integers(0, 99),
    biased=st.booleans(),
    more=st.integers(0, 5),
    block=st.integers(1, 99),
)
def test_losses_and_gradients_are_those_of_the_table(
    queries: int, classes: int, seed: int, biased: bool, more: int, block: int
) -> None:
    torch.manual_seed(seed)
    given_ = [torch.randn(queries, 3, requires_grad=True), torch.randn(classes, 3, requires_grad=True)]
    given_ += [torch.randn(classes, requires_grad=True)] if biased else []
    target, weights = torch.randint(classes, (queries,)), torch.rand(queries)
    bias = given_[2] if biased else None
    columns, added = torch.randint(classes, (queries, more)), torch.randn(queries, more, requires_grad=True)
    logits = (given_[0] @ given_[1].T + (given_[2] if biased else 0)).scatter_add(1, columns, added)
    given_ += [added] if more else []
    wanted = 3 * (cross_entropy(logits, target, reduction="none") * weights).sum()
    expected = torch.autograd.grad(wanted, given_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DEVICES, "cpu", replace(CPU, logit_bytes=block))  # blocks of three rows and of more
        said = (columns, added) if more else None
        actual = 3 * linear_cross_entropy(given_[0], given_[1], target, weights, bias, said)
    assert_close(actual, wanted)
    for one, other in zip(torch.autograd.grad(actual, given_), expected, strict=True):
        assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_blocks_fit_into_fast_memory_and_are_never_thin() -> None:
    assert block_rows(2**12, 32, "cpu") == 128  # 2 MiB are 2^19 logits
    assert block_rows(2**17, 32, "cpu") == 32  # four rows would fit
    assert block_rows(2**12, 32, "cuda") == 2**14


def test_huge_logits_stay_finite() -> None:
    queries = torch.tensor([[1e4]], requires_grad=True)
    loss = linear_cross_entropy(queries, torch.tensor([[1.0], [-1.0]]), torch.tensor([1]), torch.ones(1))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(queries.grad).all()
