"""Graph convolutions of items and accounts, shared by DA-GCN and TiDA-GCN.

Shapes: M items, N accounts, R = M + N nodes, E edges, K domains, B batch, D width, V width of the output.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding_bag, leaky_relu, normalize

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch
from lightgc2n.data.dataset import Domain
from lightgc2n.graph.domain_graph import DIRECTIONS
from lightgc2n.graph.sequential import Edges
from lightgc2n.layers.edge_attention import (
    AttentionWeights,
    EdgeList,
    EvenWeights,
    RefreshedWeights,
    edge_products,
    sum_along_edges,
)
from lightgc2n.layers.pooling import distinct
from lightgc2n.layers.sparse import rows_of

SLOPE = 0.2  # negative slope of the leaky ReLU, TensorFlow's default
SHORTEST = 1e-6  # shorter vectors are not normalised to length one
WEIGHTS = {"attention": AttentionWeights, "attention-epoch": RefreshedWeights, "binary": EvenWeights}
Combine = Callable[[list[Tensor]], Tensor]


def edge_weight_setting() -> Any:
    return setting(
        "attention",
        choices=tuple(WEIGHTS),
        help="Edge weights: attention in every step, once an epoch, or 1 as in the release.",
    )


def direction_setting() -> Any:
    return setting("successor", choices=DIRECTIONS, help="The neighbours in a log that an item receives from.")


def released_loops_setting() -> Any:
    return setting(False, help="Items without a successor have no self-loop, as in the release.")


@dataclass(frozen=True)
class Nodes:
    """The output of the convolutions: the nodes of every layer, and their combination."""

    raw: list[Float[Tensor, "R D"]]  # E⁰, E¹, ...
    table: Float[Tensor, "R V"]
    count: int  # number of items, which come before the accounts

    @property
    def items(self) -> Float[Tensor, "M V"]:
        return self.table[: self.count]


class Convolution(nn.Module):
    """Maps the received messages, and their product with the node."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.plain, self.product = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, nodes: Float[Tensor, "R D"], messages: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        return leaky_relu(self.plain(messages), SLOPE) + leaky_relu(self.product(nodes * messages), SLOPE)  # S + Bi


class AccountGraph(nn.Module):
    """Embeddings of items and accounts, the edges between them, and the convolutions; edges are saved with the weights.

    Args:
        combine: makes one vector of the layers of a node.
        share: the weight of the neighbours' messages; the rest is passed to `forward`.
    """

    offsets: Int[Tensor, "R_and_one"]
    columns: Int[Tensor, "E"]
    domain_stops: Int[Tensor, "K"]
    even: Float[Tensor, "N"]  # weights of the mean over accounts with items

    def __init__(
        self,
        edges: Edges,
        domains: Sequence[Domain],
        width: int,
        layers: int,
        weights: str,
        drop: float,
        combine: Combine,
        share: float = 1.0,
    ) -> None:
        super().__init__()
        self.drop, self.combine, self.share, self.domains = drop, combine, share, tuple(domains)
        count = domains[-1].stop
        self.items = nn.Parameter(torch.empty(count, width))
        self.accounts = nn.Parameter(torch.empty(edges.width - count, width))
        self.convolutions = nn.ModuleList(Convolution(width) for _ in range(layers))
        self.edges = EdgeList(edges)
        self.weights = WEIGHTS[weights](len(edges.columns))
        self.register_buffer("offsets", torch.from_numpy(edges.offsets))
        self.register_buffer("columns", torch.from_numpy(edges.columns))
        self.register_buffer("domain_stops", torch.tensor([domain.stop for domain in domains]))
        held = self.edges.totals((self.columns < count).float())[count:] > 0
        self.register_buffer("even", held / held.sum().clamp(min=1), persistent=False)
        self._start()

    def _start(self) -> None:
        """Initialise; the items of each domain count as a table of their own."""
        for table in (*(self.items[domain.start : domain.stop] for domain in self.domains), self.accounts):
            nn.init.xavier_uniform_(table.data)
        for layer in self.convolutions.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        self.refresh()

    def refresh(self) -> None:
        """Recompute edge weights that are updated once an epoch."""
        self.weights.refresh(self._nodes(), self.edges)

    def forward(self, rest: Float[Tensor, "M D"] | None = None) -> Nodes:
        nodes = self._nodes()
        weights = self.weights(nodes, self.edges)  # γ, from E⁰
        added = 0.0 if rest is None else torch.cat([rest, torch.zeros_like(self.accounts)])
        raw, read = [nodes], [nodes]
        for convolution in self.convolutions:
            messages = self.share * sum_along_edges(nodes, weights, self.edges) + added  # M = Γ E^l
            nodes = dropout(convolution(nodes, messages), self.drop, self.training)  # E^{l+1}
            raw.append(nodes)
            read.append(normalize(nodes, eps=SHORTEST))  # Ē^{l+1}
        return Nodes(raw, self.combine(read), len(self.items))

    def known_accounts(self, nodes: Nodes, account: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """The vectors of accounts of the graph."""
        return rows_of(nodes.table, len(self.items) + account)

    def accounts_of(self, nodes: Nodes, batch: Batch) -> Float[Tensor, "B V"]:
        """The vectors of the accounts of a batch; an unseen account is folded in."""
        known = self.known_accounts(nodes, batch.account.clamp(min=0))
        unseen = batch.account < 0
        if bool(unseen.any()):
            return torch.where(unseen[:, None], self.folded_in(nodes, batch), known)
        return known

    @torch.no_grad()
    def folded_in(self, nodes: Nodes, batch: Batch) -> Float[Tensor, "B V"]:
        """The vectors of accounts whose neighbours are the items of the history; an unseen one starts from the mean."""
        known_start = self.accounts[batch.account.clamp(min=0)]
        own = torch.where((batch.account >= 0)[:, None], known_start, self.even @ self.accounts)
        items, known = distinct(batch.history, batch.known)
        row, item = known.nonzero()[:, 0], items[known]
        offsets = torch.cat([item.new_zeros(1), known.sum(dim=1).cumsum(dim=0)])
        unit = normalize(own)
        match = edge_products(unit, row, normalize(self.items), item)
        weights, own_weight = self.weights.of_unseen(match, row, unit.square().sum(dim=1))
        read = [own]
        for convolution, table in zip(self.convolutions, nodes.raw, strict=False):
            senders = table[: len(self.items)].contiguous()
            messages = embedding_bag(
                item, senders, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
            )
            own = convolution(own, self.share * (messages + own_weight[:, None] * own))
            read.append(normalize(own, eps=SHORTEST))
        return self.combine(read)

    def _nodes(self) -> Float[Tensor, "R D"]:
        return torch.cat([self.items, self.accounts])


def saved_edges(tensors: Mapping[str, Tensor]) -> tuple[Edges, tuple[Domain, ...]]:
    """The edges and the domains of a saved model whose `AccountGraph` is called `graph`."""
    offsets, columns = tensors["graph.offsets"].numpy(), tensors["graph.columns"].numpy()
    stops = tensors["graph.domain_stops"].tolist()
    domains = tuple(Domain(str(k), start, stop) for k, (start, stop) in enumerate(pairwise([0, *stops])))
    return Edges(offsets, columns, np.ones(len(columns), dtype=np.float32), len(offsets) - 1), domains
