"""DA-GCN (Guo et al., IJCAI 2021): items and accounts of several domains on one graph, histories max-pooled.

Shapes: B batch, M items, N accounts, R nodes, K domains, H latent users, L layers, V = (L + 1) · width, F features of
one domain.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.graph.domain_graph import build_domain_graph
from lightgc2n.graph.sequential import Edges
from lightgc2n.layers.account_graph import (
    AccountGraph,
    Nodes,
    direction_setting,
    edge_weight_setting,
    released_loops_setting,
    saved_edges,
)
from lightgc2n.layers.crossentropy import linear_cross_entropy
from lightgc2n.layers.domain_views import draw_several, fixed_width, view_of
from lightgc2n.layers.pooling import pooled_events
from lightgc2n.models.contract import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class DAGCNConfig:
    """The release's values where it has them; the paper's symbols in brackets."""

    width: int = setting(16, at_least=1, help="Width of one latent user [d].")
    latent_users: int = setting(4, at_least=1, at_most=16, help="Slices of every embedding [H]; the release has 1.")
    layers: int = setting(1, at_least=1, at_most=8, help="Graph convolutions [L].")
    edge_weight: str = edge_weight_setting()
    direction: str = direction_setting()
    released_loops: bool = released_loops_setting()
    dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of features dropped in training [ρ].")
    cuts: int = setting(4, at_least=1, help="Queries drawn from each log in each epoch.")


class DomainHead(nn.Module):
    """A weight vector and a bias for each item; each domain has its own softmax."""

    def __init__(self, domains: Sequence[Domain], width: int) -> None:
        super().__init__()
        self.domains = tuple(domains)
        self.weight = nn.Parameter(torch.empty(domains[-1].stop, width * len(domains)))
        self.bias = nn.Parameter(torch.zeros(domains[-1].stop))
        for domain in domains:
            nn.init.xavier_normal_(self.weight.data[domain.start : domain.stop])

    def loss(self, features: list[Float[Tensor, "B F"]], targets: Int[Tensor, "B K"]) -> Float[Tensor, ""]:
        """The sum over domains of the mean cross-entropy over the queries that have a target in the domain."""
        terms = []
        for number, domain in enumerate(self.domains):
            target, own = targets[:, number], slice(domain.start, domain.stop)
            has_target = (target >= 0).float()
            share, local = has_target / has_target.sum().clamp(min=1), (target - domain.start).clamp(min=0)
            joined = _own_last(features, number)
            terms.append(linear_cross_entropy(joined, self.weight[own], local, share, self.bias[own]))
        return torch.stack(terms).sum()

    def scores(self, features: list[Float[Tensor, "B F"]], domain: Domain) -> Float[Tensor, "B M"]:
        """A score for each item of the domain, which may be any range of items."""
        parts = []
        for number, own in enumerate(self.domains):
            start, stop = max(own.start, domain.start), min(own.stop, domain.stop)
            if start < stop:
                weight, bias = self.weight[own.start : own.stop], self.bias[own.start : own.stop]
                # All items of the domain, so that a part has bit for bit the scores of the whole.
                whole = torch.addmm(bias, _own_last(features, number), weight.T)
                parts.append(whole[:, start - own.start : stop - own.start])
        return torch.cat(parts, dim=1)


def _own_last(features: list[Float[Tensor, "B F"]], number: int) -> Float[Tensor, "B KF"]:
    return torch.cat([*features[:number], *features[number + 1 :], features[number]], dim=1)


def concatenated_layers(layers: list[Tensor], latent_users: int) -> Float[Tensor, "R V"]:
    """The layers of each node concatenated, each the mean over its latent users."""
    return torch.cat([layer.view(len(layer), latent_users, -1).mean(dim=1) for layer in layers], dim=1)  # X


class DomainGraphModel(Model):
    """A model on the graph of DA-GCN: each domain scores its items from the features of all domains."""

    config: Any
    domains: tuple[Domain, ...]
    graph: AccountGraph
    head: DomainHead

    def warm_start_tensors(self) -> dict[str, str]:
        items = ("graph.items", "head.weight", "head.bias")
        return {"graph.accounts": "accounts", **dict.fromkeys(items, "items")}

    @property
    def cuda_graph_safe(self) -> bool:
        return True

    @property
    def captured_length(self) -> int:
        return 320  # padding costs these layers little

    def start_epoch(self, epoch: int) -> None:
        self.graph.refresh()

    def losses(self, encoded: Nodes, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        queries, targets = draw_several(batch, self.domains, self.config.cuts)
        accounts = self.graph.known_accounts(encoded, queries.account)
        features = self.domain_features(encoded, queries, accounts)
        return {"next_item": self.head.loss(features, targets)}

    @torch.no_grad()
    def scores(self, encoded: Nodes, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        return self.head.scores(self.domain_features(encoded, batch, self.graph.accounts_of(encoded, batch)), domain)

    @torch.no_grad()
    def fold_in_scores(self, encoded: Nodes, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """Scores whose account neighbours are the items of the history instead of the training items."""
        return self.head.scores(self.domain_features(encoded, batch, self.graph.folded_in(encoded, batch)), domain)

    @abstractmethod
    def domain_features(
        self, encoded: Nodes, batch: Batch, account: Float[Tensor, "B V"]
    ) -> list[Float[Tensor, "B F"]]:
        """The features of each domain, from its history and the account's vector."""


class DAGCN(DomainGraphModel):
    """Each domain scores its items from the pooled histories of all domains and the account."""

    def __init__(self, config: DAGCNConfig, edges: Edges, domains: Sequence[Domain]) -> None:
        super().__init__()
        self.config, self.domains = config, tuple(domains)
        self.graph = AccountGraph(
            edges,
            domains,
            width=config.latent_users * config.width,
            layers=config.layers,
            weights=config.edge_weight,
            drop=config.dropout,
            combine=partial(concatenated_layers, latent_users=config.latent_users),
        )
        self.head = DomainHead(domains, 2 * (config.layers + 1) * config.width)
        self.dropout = nn.Dropout(config.dropout)

    @classmethod
    def build(cls, config: DAGCNConfig, train: Training) -> "DAGCN":
        return cls(config, build_domain_graph(train, config.direction, config.released_loops), train.domains)

    @classmethod
    def restore(cls, config: DAGCNConfig, tensors: dict[str, Tensor]) -> "DAGCN":
        model = cls(config, *saved_edges(tensors))
        model.load_state_dict(tensors)
        return model

    def encode(self) -> Nodes:
        return self.graph()

    def domain_features(
        self, encoded: Nodes, batch: Batch, account: Float[Tensor, "B V"]
    ) -> list[Float[Tensor, "B 2*V"]]:
        """The features of each domain: the maximum over its history, and the account."""
        by_domain = []
        for domain in self.domains:
            view = view_of(batch, domain, fixed_width(batch))
            most = pooled_events(encoded.items, view.items + domain.start, view.known, "max")  # m
            features = self.dropout(torch.cat([most, account], dim=1))  # r
            by_domain.append(self.dropout(features))  # Differs: one dropout mask for all domains, not one for each
        return by_domain
