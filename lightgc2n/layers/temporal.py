"""Attention of a node to its neighbours in time, and how a span of time becomes a vector.

Shapes: P nodes, S neighbours of each, H heads, D width of a node, T width of a time, W = D + T.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from lightgc2n.layers.attention import softmax_over


class TimeEncoding(nn.Module):
    """Φ(Δ) = cos(ωΔ + φ), with learned frequencies that start evenly by their order of magnitude.

    Args:
        highest: the power of ten of the first frequency, before training.
        lowest: that of the last one.
    """

    def __init__(self, width: int, highest: float, lowest: float) -> None:
        super().__init__()
        self.frequency = nn.Parameter(10 ** torch.linspace(highest, lowest, width))  # ω
        self.phase = nn.Parameter(torch.zeros(width))  # φ

    def forward(self, span: Float[Tensor, "*any"]) -> Float[Tensor, "*any T"]:
        return torch.cos(span[..., None] * self.frequency + self.phase)


class TemporalAttention(nn.Module):
    """One TCT layer: the node at a time, by what it hears of neighbours that were there before."""

    def __init__(self, width: int, time_width: int, heads: int, drop: float) -> None:
        super().__init__()
        both = width + time_width
        self.heads, self.drop = heads, drop
        self.query, self.key, self.value = (nn.Linear(both, both, bias=False) for _ in range(3))
        self.out, self.norm = nn.Linear(both, both), nn.LayerNorm(both)
        self.inner, self.outer = nn.Linear(both + width, width), nn.Linear(width, width)
        for part in (self.query, self.key, self.value):
            nn.init.normal_(part.weight, std=(2 / (both + both / heads)) ** 0.5)
        for part in (self.out, self.inner, self.outer):
            nn.init.xavier_normal_(part.weight)
            nn.init.zeros_(part.bias)

    def forward(
        self,
        node: Float[Tensor, "P D"],
        now: Float[Tensor, "T"],
        neighbours: Float[Tensor, "P S D"],
        times: Float[Tensor, "P S T"],
        known: Bool[Tensor, "P S"],
    ) -> Float[Tensor, "P D"]:
        """A node without known neighbours goes on by itself."""
        asking = torch.cat([node, now.expand(len(node), -1)], dim=1)  # q
        there = torch.cat([neighbours, times], dim=2)  # κ
        shares = softmax_over(known[:, None], self._asked(asking) @ there.mT)  # α
        heard = self._valued(shares @ there)  # o
        mixed = self.norm(asking + dropout(self.out(heard), self.drop, self.training))  # g
        return self.outer(relu(self.inner(torch.cat([mixed, node], dim=1))))  # h

    def _asked(self, asking: Float[Tensor, "P W"]) -> Float[Tensor, "P H W"]:
        """(W_q q)·(W_k κ) = (W_kᵀ W_q q)·κ: the node is mapped, never its many neighbours."""
        query = self.query(asking).view(len(asking), self.heads, asking.shape[1] // self.heads)
        key = self.key.weight.view(self.heads, -1, asking.shape[1])
        return torch.einsum("phc,hcw->phw", query, key) / query.shape[2] ** 0.5

    def _valued(self, heard: Float[Tensor, "P H W"]) -> Float[Tensor, "P W"]:
        """Σ α W_v κ = W_v Σ α κ: what was heard is mapped once."""
        value = self.value.weight.view(self.heads, -1, heard.shape[2])
        return torch.einsum("phw,hcw->phc", heard, value).reshape(len(heard), heard.shape[2])
