"""TiDA-GCN (Guo et al., TNNLS 2022): DA-GCN's graph with time intervals between items, and account-aware attention.

Shapes: B batch, X events of one domain, M items, N accounts, R nodes, K domains, H latent users, W width of one,
D = H · W, F = 2 · W, G heads, I classes of intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from lightgc2n.baselines.da_gcn import DomainGraphModel, DomainHead
from lightgc2n.config import setting
from lightgc2n.data.batches import Batch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.errors import SettingError
from lightgc2n.graph.domain_graph import build_domain_graph, build_intervals
from lightgc2n.graph.sequential import Edges
from lightgc2n.layers.account_graph import (
    AccountGraph,
    Nodes,
    direction_setting,
    edge_weight_setting,
    released_loops_setting,
    saved_edges,
)
from lightgc2n.layers.domain_views import newest_views
from lightgc2n.layers.sparse import WeightedSum, rows_of

EPSILON = 1e-8  # added to every variance
FROM_GRAPH, FROM_ATTENTION = 0.9, 0.1  # fixed weights of both parts, from the authors


@dataclass(frozen=True, slots=True, kw_only=True)
class TiDAGCNConfig:
    """The release's values where it has them; the paper's symbols in brackets."""

    width: int = setting(16, at_least=1, help="Width of one latent user [d].")
    latent_users: int = setting(4, at_least=1, at_most=16, help="Slices of every embedding [H].")
    layers: int = setting(1, at_least=1, at_most=8, help="Graph convolutions [L].")
    blocks: int = setting(1, at_least=1, at_most=8, help="Attention blocks of each domain.")
    heads: int = setting(1, at_least=1, help="Attention heads.")
    max_length: int = setting(50, at_least=1, help="Newest events of each domain that are read.")
    graph_share: float = setting(
        0.8, at_least=0.0, at_most=1.0, help="Weight of the neighbours' messages; the rest are time intervals [α]."
    )
    time: str = setting("auto", choices=("auto", "none"), help="Use time intervals where times are known, or never.")
    waits: int = setting(366, at_least=2, help="Classes of time intervals: days, the last for all longer ones.")
    smoothing: float = setting(0.5, at_least=0.0, at_most=1.0, help="Exponent of the sum over latent users [β].")
    edge_weight: str = edge_weight_setting()
    direction: str = direction_setting()
    released_loops: bool = released_loops_setting()
    dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of features dropped in training.")
    cuts: int = setting(4, at_least=1, help="Queries drawn from each log in each epoch.")


def norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=EPSILON)


class AccountBlock(nn.Module):
    """The account attends to the events up to each place; then a feed-forward layer."""

    def __init__(self, width: int, inner: int, heads: int, drop: float) -> None:
        super().__init__()
        self.heads, self.drop = heads, drop
        self.asking_norm, self.mixed_norm = norm(width), norm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, account: Float[Tensor, "B D"], events: Float[Tensor, "B X D"]) -> Float[Tensor, "B X D"]:
        query_vector = self.asking_norm(account)[:, None]  # q̄, the same at every event
        shares = dropout(self.shares(query_vector, events), self.drop, self.training)
        values = self._by_head(relu(self.value(events)))
        attended = (shares @ values).transpose(1, 2).flatten(2)
        mixed = self.mixed_norm(query_vector + attended)  # ō
        return mixed + self.outer(relu(self.inner(mixed)))  # κ

    def shares(self, query_vector: Float[Tensor, "B 1 D"], events: Float[Tensor, "B X D"]) -> Float[Tensor, "B G X X"]:
        """The causal attention weights; padding comes after all events, so the causal mask excludes it."""
        query, key = self._by_head(relu(self.query(query_vector))), self._by_head(relu(self.key(events)))
        match = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5  # one row: the query is the same at every event
        size = events.shape[1]
        later = torch.ones(size, size, dtype=torch.bool, device=events.device).triu(1)
        return match.expand(-1, -1, size, -1).masked_fill(later, -torch.inf).softmax(dim=-1)  # a

    def _by_head(self, vectors: Float[Tensor, "B Y D"]) -> Float[Tensor, "B G Y _"]:
        return vectors.view(*vectors.shape[:2], self.heads, -1).transpose(1, 2)


class LatentUserPooling(nn.Module):
    """One vector of the latent users, weighted by their fit to the newest event."""

    def __init__(self, width: int, smoothing: float) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.fit_norm, self.pooled_norm = norm(width), norm(width)
        self.weight, self.bias = nn.Parameter(torch.empty(width, width)), nn.Parameter(torch.empty(1, width))
        self.direction = nn.Parameter(torch.ones(width, 1))  # g

    def forward(self, users: Float[Tensor, "B H W"], last: Float[Tensor, "B W"]) -> Float[Tensor, "B W"]:
        exponents = self.log_shares(users, last)
        # Differs: weights above one are scaled down together, to avoid overflow; the norm removes any scale.
        shares = (exponents - relu(exponents.amax(dim=1, keepdim=True))).exp()
        return self.pooled_norm((shares * users).sum(dim=1))  # p

    def log_shares(self, users: Float[Tensor, "B H W"], last: Float[Tensor, "B W"]) -> Float[Tensor, "B H 1"]:
        """log(exp(ω) / (Σ exp(ω))^β), whose exponentials do not sum to one."""
        fit = torch.tanh(self.fit_norm(users * last[:, None]) @ self.weight + self.bias) @ self.direction  # ω
        return fit - self.smoothing * fit.logsumexp(dim=1, keepdim=True)


class AccountReader(nn.Module):
    """The features of one domain's history and the account."""

    def __init__(
        self, width: int, latent_users: int, longest: int, blocks: int, heads: int, smoothing: float, drop: float
    ) -> None:
        super().__init__()
        whole = latent_users * width
        self.latent_users, self.drop = latent_users, drop
        self.positions = nn.Parameter(torch.empty(longest, whole))
        self.blocks = nn.ModuleList(AccountBlock(whole, 2 * width, heads, drop) for _ in range(blocks))
        self.read_norm, self.item_norm, self.account_norm = norm(whole), norm(whole), norm(whole)
        self.pooling = LatentUserPooling(width, smoothing)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1 and not name.endswith("direction"):
                nn.init.xavier_uniform_(parameter)
            elif name.split(".")[-2:] in [[part, "bias"] for part in ("query", "key", "value", "inner", "outer")]:
                nn.init.zeros_(parameter)

    def forward(
        self, items: Float[Tensor, "B X D"], account: Float[Tensor, "B D"], known: Bool[Tensor, "B X"]
    ) -> Float[Tensor, "B F"]:
        there = known[..., None]
        events = self._dropped(items + self.positions[: items.shape[1]]) * there  # κ⁰
        for block in self.blocks:
            events = block(account, events) * there
        read = self._by_user(self.read_norm(events)) * there[..., None]  # ρ
        last = (known.sum(dim=1) - 1).clamp(min=0)
        newest = read[torch.arange(len(last), device=last.device), last].mean(dim=1)  # λ
        pooled = self.pooling(read.sum(dim=1), newest) * known.any(dim=1, keepdim=True)
        listed = (self._by_user(self.item_norm(items)).mean(dim=2) * there).sum(dim=1)
        sequence = FROM_GRAPH * listed + FROM_ATTENTION * pooled  # s
        query_vector = self._by_user(self.account_norm(account)[:, None]).mean(dim=2)[:, 0]
        return self._dropped(torch.cat([sequence, known.sum(dim=1, keepdim=True) * query_vector], dim=1))  # [s ; c̄]

    def _by_user(self, vectors: Float[Tensor, "B X D"]) -> Float[Tensor, "B X H W"]:
        return vectors.view(*vectors.shape[:2], self.latent_users, -1)

    def _dropped(self, vectors: Tensor) -> Tensor:
        return dropout(vectors, self.drop, self.training)


class Waits(nn.Module):
    """The mean embedding of the time intervals to the next item, for each item; saved with the weights."""

    offsets: Int[Tensor, "M_and_one"]
    columns: Int[Tensor, "S"]
    shares: Float[Tensor, "S"]

    def __init__(self, edges: Edges, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(nn.init.xavier_uniform_(torch.empty(edges.width, width)))  # Q
        self.sums = WeightedSum(edges)
        for name, array in (("offsets", edges.offsets), ("columns", edges.columns), ("shares", edges.weights)):
            self.register_buffer(name, torch.from_numpy(array))

    def forward(self) -> Float[Tensor, "M D"]:
        return self.sums(self.table)  # T = Θ Q


def waits_saved(tensors: Mapping[str, Tensor]) -> Edges | None:
    """The intervals of a saved model whose `Waits` is called `waits`; None for a model without times."""
    if "waits.offsets" not in tensors:
        return None
    offsets, columns, shares = (tensors[f"waits.{name}"].numpy() for name in ("offsets", "columns", "shares"))
    return Edges(offsets, columns, shares, len(tensors["waits.table"]))


def mean_of_layers(layers: list[Tensor]) -> Float[Tensor, "R D"]:
    return torch.stack(layers).mean(dim=0)  # Z


class TiDAGCN(DomainGraphModel):
    """Each domain scores its items from the features of all domains' histories and the account."""

    def __init__(self, config: TiDAGCNConfig, edges: Edges, domains: Sequence[Domain], intervals: Edges | None) -> None:
        super().__init__()
        whole = config.latent_users * config.width
        if whole % config.heads:
            raise SettingError(f"tida-gcn: {config.heads} heads do not divide width {whole}. Choose a divisor of it.")
        self.config, self.domains = config, tuple(domains)
        self.waits = None if intervals is None else Waits(intervals, whole)
        self.graph = AccountGraph(
            edges,
            domains,
            width=whole,
            layers=config.layers,
            weights=config.edge_weight,
            drop=config.dropout,
            combine=mean_of_layers,
            share=1.0 if intervals is None else config.graph_share,
        )
        sizes = (config.width, config.latent_users, config.max_length, config.blocks, config.heads)
        self.readers = nn.ModuleList(AccountReader(*sizes, config.smoothing, config.dropout) for _ in domains)
        self.head = DomainHead(domains, 2 * config.width)

    @classmethod
    def build(cls, config: TiDAGCNConfig, train: Training) -> "TiDAGCN":
        edges = build_domain_graph(train, config.direction, config.released_loops)
        timed = config.time == "auto"
        return cls(config, edges, train.domains, build_intervals(train, config.waits) if timed else None)

    @classmethod
    def restore(cls, config: TiDAGCNConfig, tensors: dict[str, Tensor]) -> "TiDAGCN":
        model = cls(config, *saved_edges(tensors), waits_saved(tensors))
        model.load_state_dict(tensors)
        return model

    def encode(self) -> Nodes:
        return self.graph(None if self.waits is None else (1 - self.config.graph_share) * self.waits())

    def domain_features(
        self, encoded: Nodes, batch: Batch, account: Float[Tensor, "B D"]
    ) -> list[Float[Tensor, "B F"]]:
        """The features of each domain."""
        by_domain = []
        views = newest_views(batch, self.domains, self.config.max_length)
        for domain, view, reader in zip(self.domains, views, self.readers, strict=True):
            features = reader(rows_of(encoded.items, view.items + domain.start), account, view.known)
            # Differs: one dropout mask for all domains, not one for each
            by_domain.append(dropout(features, self.config.dropout, self.training))
        return by_domain
