"""A masked softmax, and causal self-attention over packed logs.

Shapes: P events, D width.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from lightgc2n.data.batches import Packing


def softmax_over(known: Bool[Tensor, "*#any W"], logits: Float[Tensor, "*any W"]) -> Float[Tensor, "*any W"]:
    """The softmax over known places; all zeros where none is known."""
    shares = torch.softmax(logits.masked_fill(~known, torch.finfo(logits.dtype).min), dim=-1)
    return shares * known


class CausalAttention(nn.Module):
    """Every event attends to itself and to the older events of its log.

    Padding comes after the events of its log, so the causal mask excludes it.
    """

    def __init__(self, width: int, heads: int, drop: float) -> None:
        super().__init__()
        self.width, self.heads, self.drop = width, heads, drop
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)

    def forward(
        self, queries: Float[Tensor, "P D"], events: Float[Tensor, "P D"], packing: Packing
    ) -> Float[Tensor, "P D"]:
        together = torch.cat([self.query(queries), self.key_value(events)], dim=-1)
        table = packing.spread(together)
        query, key, value = table.view(*table.shape[:2], 3, self.heads, self.width // self.heads).permute(2, 0, 3, 1, 4)
        rate = self.drop if self.training else 0.0
        mixed = scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=True)
        return packing.collect(mixed.transpose(1, 2).flatten(2))
