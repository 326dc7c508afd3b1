"""DA-GCN (Guo et al., IJCAI 2021): items and accounts of several domains on one graph, histories by their maximum.

Shapes: B batch, M items, N accounts, R nodes, K domains, H latent users, L layers, V = (L + 1) · width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import dropout

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.graph.domains import DIRECTIONS, build_domain_graph
from lightgc2n.graph.sequential import Edges
from lightgc2n.layers.account_graph import WEIGHTS, AccountGraph, Nodes, edges_saved
from lightgc2n.layers.domain_head import DomainHead
from lightgc2n.layers.domains import draw_several, view_of
from lightgc2n.layers.pooling import pooled_events
from lightgc2n.models.contract import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class DAGCNConfig:
    """The release's values where it has them; the paper's symbol stands in brackets."""

    width: int = setting(16, at_least=1, help="Width of one latent user [d].")
    latent_users: int = setting(4, at_least=1, at_most=16, help="Slices of every embedding [H]; the release has 1.")
    layers: int = setting(1, at_least=1, at_most=8, help="Graph convolutions [L].")
    edge_weight: str = setting(
        "attention", choices=tuple(WEIGHTS), help="Likeness now, at the start of the epoch, or 1 as in the release."
    )
    direction: str = setting("successor", choices=DIRECTIONS, help="From which neighbours in a log an item hears.")
    released_loops: bool = setting(False, help="Items that nothing follows do not hear themselves, as in the release.")
    dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of features dropped in training [ρ].")
    cuts: int = setting(4, at_least=1, help="Questions drawn from each log in each epoch.")


def parameter_count(config: DAGCNConfig, accounts: int, items: int, domains: int = 1) -> int:
    """(M + N)·Hd + 2L((Hd)² + Hd) + (2K(L + 1)d + 1)·M, with d the width."""
    node = config.latent_users * config.width
    words = 2 * (config.layers + 1) * config.width
    return (items + accounts) * node + 2 * config.layers * (node**2 + node) + (domains * words + 1) * items


def beside_each_other(layers: list[Tensor], latent_users: int) -> Float[Tensor, "R V"]:
    """The layers of each node side by side, each the mean over its latent users."""
    return torch.cat([layer.view(len(layer), latent_users, -1).mean(dim=1) for layer in layers], dim=1)  # X


class DAGCN(Model):
    """What each domain's history and the account say on the graph, read by every domain."""

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
            combine=partial(beside_each_other, latent_users=config.latent_users),
        )
        self.head = DomainHead(domains, 2 * (config.layers + 1) * config.width)

    @classmethod
    def build(cls, config: DAGCNConfig, train: Training) -> "DAGCN":
        return cls(config, build_domain_graph(train, config.direction, config.released_loops), train.domains)

    @classmethod
    def restore(cls, config: DAGCNConfig, tensors: dict[str, Tensor]) -> "DAGCN":
        model = cls(config, *edges_saved(tensors))
        model.load_state_dict(tensors)
        return model

    def carried(self) -> dict[str, str]:
        items = ("graph.items", "head.weight", "head.bias")
        return {"graph.accounts": "accounts", **dict.fromkeys(items, "items")}

    def start_epoch(self, epoch: int) -> None:
        self.graph.refresh()

    def encode(self) -> Nodes:
        return self.graph()

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

    def _words(self, encoded: Nodes, batch: Batch, account: Float[Tensor, "B V"]) -> list[Float[Tensor, "B 2*V"]]:
        """What each domain has to say: the maximum over its history, and the account."""
        found = []
        for domain in self.domains:
            view = view_of(batch, domain)
            most = pooled_events(encoded.items, view.items + domain.start, view.known, "max")  # m
            words = self._dropped(torch.cat([most, account], dim=1))  # r
            found.append(self._dropped(words))  # Differs: drawn once for all domains that read it, not once for each
        return found

    def _dropped(self, vectors: Tensor) -> Tensor:
        return dropout(vectors, self.config.dropout, self.training)
