"""TiDA-GCN (Guo et al., TNNLS 2022): DA-GCN's graph with time intervals between items, and account-aware attention.

Shapes: B batch, M items, N accounts, R nodes, K domains, H latent users, D = H · width, I classes of intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout

from lightgc2n.baselines.tida_gcn.account_attention import AccountReader
from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.errors import SettingError
from lightgc2n.graph.domain_graph import DIRECTIONS, build_domain_graph, build_intervals
from lightgc2n.graph.sequential import Edges
from lightgc2n.layers.account_graph import WEIGHTS, AccountGraph, Nodes, saved_edges
from lightgc2n.layers.domain_head import DomainHead
from lightgc2n.layers.domain_views import draw_several, newest_views
from lightgc2n.layers.propagation import WeightedSum, rows_of
from lightgc2n.models.contract import Model


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
    edge_weight: str = setting(
        "attention",
        choices=tuple(WEIGHTS),
        help="Edge weights: attention in every step, once an epoch, or 1 as in the release.",
    )
    direction: str = setting(
        "successor", choices=DIRECTIONS, help="The neighbours in a log that an item receives from."
    )
    released_loops: bool = setting(False, help="Items without a successor have no self-loop, as in the release.")
    dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of features dropped in training.")
    cuts: int = setting(4, at_least=1, help="Queries drawn from each log in each epoch.")


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


class TiDAGCN(Model):
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

    def warm_start_tensors(self) -> dict[str, str]:
        items = ("graph.items", "head.weight", "head.bias")
        return {"graph.accounts": "accounts", **dict.fromkeys(items, "items")}

    def start_epoch(self, epoch: int) -> None:
        self.graph.refresh()

    def encode(self) -> Nodes:
        return self.graph(None if self.waits is None else (1 - self.config.graph_share) * self.waits())

    def losses(self, encoded: Nodes, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        queries, targets = draw_several(batch, self.domains, self.config.cuts)
        features = self._domain_features(encoded, queries, self.graph.accounts_of(encoded, queries))
        return {"next_item": self.head.loss(features, targets)}

    @torch.no_grad()
    def scores(self, encoded: Nodes, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        return self.head.scores(self._domain_features(encoded, batch, self.graph.accounts_of(encoded, batch)), domain)

    @torch.no_grad()
    def fold_in_scores(self, encoded: Nodes, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """Scores whose account neighbours are the items of the history instead of the training items."""
        return self.head.scores(self._domain_features(encoded, batch, self.graph.folded_in(encoded, batch)), domain)

    def _domain_features(
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
