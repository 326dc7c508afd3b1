"""Attention within logs, against loops and by hand."""

import torch
from torch.testing import assert_close

from lightgc2n.data.batches import pack
from lightgc2n.layers.attention import CausalAttention


def test_by_hand() -> None:
    """Equal keys give equal weights, so each event gets the mean of the values up to it."""
    attention = CausalAttention(width=1, heads=1, drop=0.0)
    with torch.no_grad():
        attention.query.weight.fill_(1.0), attention.query.bias.zero_()
        attention.key_value.weight.copy_(torch.tensor([[0.0], [2.0]])), attention.key_value.bias.zero_()
    packing = pack(torch.tensor([[True, True, True], [True, False, False]]))
    events = torch.tensor([[1.0], [2.0], [6.0], [5.0]])
    assert_close(attention(events, events, packing), torch.tensor([[2.0], [3.0], [6.0], [10.0]]))


def test_heads_and_logs_as_loops() -> None:
    torch.manual_seed(0)
    lengths, width, heads = [5, 2, 3], 6, 2
    attention = CausalAttention(width, heads, drop=0.0)
    packing = pack(torch.arange(5) < torch.tensor(lengths)[:, None])
    asking, events = torch.randn(10, width), torch.randn(10, width)
    query = attention.query(asking)
    key, value = attention.key_value(events).chunk(2, dim=1)
    expected = torch.zeros(10, width)
    first_of = [0, 0, 0, 0, 0, 5, 5, 7, 7, 7]
    for here in range(10):
        for head in (slice(0, 3), slice(3, 6)):
            past = slice(first_of[here], here + 1)
            weights = torch.softmax(key[past, head] @ query[here, head] / 3**0.5, dim=0)
            expected[here, head] = weights @ value[past, head]
    assert_close(attention(asking, events, packing), expected)


def test_dropout_is_for_training_alone() -> None:
    torch.manual_seed(0)
    attention = CausalAttention(width=4, heads=1, drop=0.5)
    events, packing = torch.randn(6, 4), pack(torch.ones(1, 6, dtype=torch.bool))
    assert not torch.equal(attention(events, events, packing), attention(events, events, packing))
    attention.eval()
    assert torch.equal(attention(events, events, packing), attention(events, events, packing))
