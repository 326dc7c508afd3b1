"""Temporal attention of a node to its neighbours, and the encoding of time spans.

Shapes: P nodes, S neighbours of each, H heads, D width of a node, T width of a time, W = D + T.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from lightgc2n.layers.attention import softmax_over


class TimeEncoding(nn.Module):
    """Φ(Δ) = cos(ωΔ + φ), with learned frequencies that start log-uniformly.

    Args:
        highest: the initial power of ten of the first frequency.
        lowest: the initial power of ten of the last frequency.
    """

    def __init__(self, width: int, highest: float, lowest: float) -> None:
        super().__init__()
        self.frequency = nn.Parameter(10 ** torch.linspace(highest, lowest, width))  # ω
        self.phase = nn.Parameter(torch.zeros(width))  # φ

    def forward(self, span: Float[Tensor, "*any"]) -> Float[Tensor, "*any T"]:
        return torch.cos(span[..., None] * self.frequency + self.phase)


class TemporalAttention(nn.Module):
    """One TCT layer: a node at a time attends to its earlier neighbours."""

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
        """The next vector of each node; a node without known neighbours has its own alone."""
        query_input = torch.cat([node, now.expand(len(node), -1)], dim=1)  # q
        there = torch.cat([neighbours, times], dim=2)  # κ
        shares = softmax_over(known[:, None], self._mapped_query(query_input) @ there.mT)  # α
        attended = self._mapped_value(shares @ there)  # o
        mixed = self.norm(query_input + dropout(self.out(attended), self.drop, self.training))  # g
        return self.outer(relu(self.inner(torch.cat([mixed, node], dim=1))))  # h

    def _mapped_query(self, query_input: Float[Tensor, "P W"]) -> Float[Tensor, "P H W"]:
        """(W_q q)·(W_k κ) = (W_kᵀ W_q q)·κ: only the node is mapped, not its neighbours."""
        query = self.query(query_input).view(len(query_input), self.heads, query_input.shape[1] // self.heads)
        key = self.key.weight.view(self.heads, -1, query_input.shape[1])
        return torch.einsum("phc,hcw->phw", query, key) / query.shape[2] ** 0.5

    def _mapped_value(self, attended: Float[Tensor, "P H W"]) -> Float[Tensor, "P W"]:
        """Σ α W_v κ = W_v Σ α κ: the sum is mapped once."""
        value = self.value.weight.view(self.heads, -1, attended.shape[2])
        return torch.einsum("phw,hcw->phc", attended, value).reshape(len(attended), attended.shape[2])
