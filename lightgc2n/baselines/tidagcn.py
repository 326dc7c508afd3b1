"""TiDA-GCN (Guo et al., TNNLS 2022): DA-GCN's graph with the waits between items, read by account-aware attention.

Shapes: B batch, M items, N accounts, R nodes, K domains, H latent users, D = H · width, I classes of waits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.errors import SettingError
from lightgc2n.graph.domains import DIRECTIONS, build_domain_graph, build_intervals
from lightgc2n.graph.sequential import Edges
from lightgc2n.layers.account_attention import AccountReader
from lightgc2n.layers.account_graph import WEIGHTS, AccountGraph, Nodes, edges_saved
from lightgc2n.layers.domain_head import DomainHead
from lightgc2n.layers.domains import draw_several, newest_views
from lightgc2n.layers.propagation import WeightedSum, rows_of
from lightgc2n.models.contract import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class TiDAGCNConfig:
    """The release's values where it has them; the paper's symbol stands in brackets."""

    width: int = setting(16, at_least=1, help="Width of one latent user [d].")
    latent_users: int = setting(4, at_least=1, at_most=16, help="Slices of every embedding [H].")
    layers: int = setting(1, at_least=1, at_most=8, help="Graph convolutions [L].")
    blocks: int = setting(1, at_least=1, at_most=8, help="Attention blocks of each domain.")
    heads: int = setting(1, at_least=1, help="Parts that the width of all latent users is divided into.")
    max_length: int = setting(50, at_least=1, help="Newest events of each domain that are read.")
    graph_share: float = setting(
        0.8, at_least=0.0, at_most=1.0, help="How much a node hears from neighbours; the rest are waits [α]."
    )
    time: str = setting("auto", choices=("auto", "none"), help="Hear waits where times are known, or never.")
    waits: int = setting(366, at_least=2, help="Classes of waits: days, the last for all that are longer.")
    smoothing: float = setting(0.5, at_least=0.0, at_most=1.0, help="Exponent of the sum over latent users [β].")
    edge_weight: str = setting(
        "attention", choices=tuple(WEIGHTS), help="Likeness now, at the start of the epoch, or 1 as in the release."
    )
    direction: str = setting("successor", choices=DIRECTIONS, help="From which neighbours in a log an item hears.")
    released_loops: bool = setting(False, help="Items that nothing follows do not hear themselves, as in the release.")
    dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of features dropped in training.")
    cuts: int = setting(4, at_least=1, help="Questions drawn from each log in each epoch.")


def parameter_count(config: TiDAGCNConfig, accounts: int, items: int, domains: int = 1, timed: bool = False) -> int:
    """(M + N + [I])·D + 2L(D² + D) + (2Kd + 1)·M and K readers, where d is the width and D = Hd.

    A reader has max_length·D + d² + 6d + 6D, and 3(D² + D) + 4dD + 2d + 5D a block. [I]: where times are known.
    """
    width, whole = config.width, config.latent_users * config.width
    nodes = (items + accounts + timed * config.waits) * whole + 2 * config.layers * (whole**2 + whole)
    block = 3 * (whole**2 + whole) + 4 * width * whole + 2 * width + 5 * whole
    reader = config.max_length * whole + width**2 + 6 * width + 6 * whole + config.blocks * block
    return nodes + domains * reader + (2 * domains * width + 1) * items


class Waits(nn.Module):
    """For each item the mean vector of how long it waits for what follows; saved with the weights learned on it."""

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
    """The shares that `Waits` called `waits` was saved with; None for a model without times."""
    if "waits.offsets" not in tensors:
        return None
    offsets, columns, shares = (tensors[f"waits.{name}"].numpy() for name in ("offsets", "columns", "shares"))
    return Edges(offsets, columns, shares, len(tensors["waits.table"]))


def mean_of_layers(layers: list[Tensor]) -> Float[Tensor, "R D"]:
    return torch.stack(layers).mean(dim=0)  # Z


class TiDAGCN(Model):
    """What each domain's reader makes of its history and the account, read by every domain."""

    def __init__(self, config: TiDAGCNConfig, edges: Edges, domains: Sequence[Domain], intervals: Edges | None) -> None:
        super().__init__()
        whole = config.latent_users * config.width
        if whole % config.heads:
            raise SettingError(f"tida-gcn: {config.heads} heads cannot share width {whole}. Choose a divisor.")
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
        model = cls(config, *edges_saved(tensors), waits_saved(tensors))
        model.load_state_dict(tensors)
        return model

    def carried(self) -> dict[str, str]:
        items = ("graph.items", "head.weight", "head.bias")
        return {"graph.accounts": "accounts", **dict.fromkeys(items, "items")}

    def start_epoch(self, epoch: int) -> None:
        self.graph.refresh()

    def encode(self) -> Nodes:
        return self.graph(None if self.waits is None else (1 - self.config.graph_share) * self.waits())

    def losses(self, encoded: Nodes, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        asked, targets = draw_several(batch, self.domains, self.config.cuts)
        words = self._words(encoded, asked, self.graph.accounts_of(encoded, asked))
        return {"next_item": self.head.loss(words, targets)}

    @torch.no_grad()
    def scores(self, encoded: Nodes, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        return self.head.scores(self._words(encoded, batch, self.graph.accounts_of(encoded, batch)), domain)

    @torch.no_grad()
    def fold_in_scores(self, encoded: Nodes, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """Scores where an account's neighbours are the items of the history, not those it had in training."""
        return self.head.scores(self._words(encoded, batch, self.graph.folded_in(encoded, batch)), domain)

    def _words(self, encoded: Nodes, batch: Batch, account: Float[Tensor, "B D"]) -> list[Float[Tensor, "B F"]]:
        """What each domain has to say."""
        found = []
        views = newest_views(batch, self.domains, self.config.max_length)
        for domain, view, reader in zip(self.domains, views, self.readers, strict=True):
            words = reader(rows_of(encoded.items, view.items + domain.start), account, view.known)
            # Differs: drawn once for all domains that read it, not once for each
            found.append(dropout(words, self.config.dropout, self.training))
        return found
