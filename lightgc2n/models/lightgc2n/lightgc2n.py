"""LightGC²N (Zhang et al., AAAI 2025): capsules on the account-item graph, then subspace alignment.

Shapes: B batch, T history, M items, N accounts, A latent users, D capsule width, W embedding width.
`docs/equations.md` maps the paper's equations to functions and tests, and explains how each was read.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.graph.sequential import SequentialGraph
from lightgc2n.layers.crossentropy import linear_cross_entropy
from lightgc2n.layers.parts_of_tables import dropout_of_targets, xavier_uniform
from lightgc2n.layers.pooling import columns_of, distinct, running_sums
from lightgc2n.layers.sparse import rows_of
from lightgc2n.models.contract import LatentUsers, Model
from lightgc2n.models.lightgc2n.convolution import (
    CapsuleConvolution,
    GraphNeighbours,
    Neighbourhood,
    NoConvolution,
    PlainConvolution,
)
from lightgc2n.models.lightgc2n.subspaces import NoAlignment, SubspaceAlignment, contrast


@dataclass(frozen=True, slots=True, kw_only=True)
class LightGC2NConfig:
    """The paper's values; its symbols in brackets."""

    latent_users: int = setting(3, at_least=1, at_most=16, help="Latent users of each account [α].")
    embedding_width: int = setting(16, at_least=1, help="Width of the embeddings at layer 0 [d1].")
    capsule_width: int = setting(16, at_least=1, help="Width of the capsules [d2].")
    layers: int = setting(2, at_least=1, at_most=8, help="Graph convolutions [L].")
    routing_steps: int = setting(3, at_least=1, at_most=10, help="Iterations of the dynamic routing [θ].")
    smoothing: float = setting(1e-4, at_least=1e-12, help="Smoothness of the subspace affinities [λ].")
    temperature: float = setting(0.8, at_least=0.01, help="Temperature of the contrast [β].")
    contrast_weight: float = setting(0.8, at_least=0.0, help="Weight of the contrast in the loss [γ].")
    dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of features dropped in training.")
    negatives: str = setting(
        "all", choices=("batch", "all"), help="Negatives of Eq. 17: the items of the batch, or all items."
    )
    pooling: str = setting(
        "mean", choices=("sum", "mean"), help="How the rows of a sequence are pooled into one vector."
    )
    graph_events: str = setting(
        "all", choices=("all", "inputs"), help="Events of the graph: all of training, or those that are an input."
    )
    contrast_scale: str = setting(
        "mean", choices=("mean", "sum"), help="Eq. 18 as a mean over the events of a batch, or as the printed sum."
    )


@dataclass(frozen=True)
class Encoded:
    """Everything that does not depend on the batch."""

    layers: list[Float[Tensor, "M D"]]  # item capsules of every layer
    items: Float[Tensor, "M D"]  # their sum
    refined: Float[Tensor, "M D"]  # projected into the subspaces
    rows: Float[Tensor, "M D"]  # the row of each item in a sequence


class LightGC2N(Model):
    """The model; an ablation is the same class with another part."""

    encodes_all_accounts = True

    def __init__(self, config: LightGC2NConfig, graph: SequentialGraph, parts: "Parts") -> None:
        super().__init__()
        self.config = config
        self.graph = GraphNeighbours(graph)
        self.item_embeddings = nn.Parameter(torch.empty(graph.items, config.embedding_width))
        self.account_embeddings = nn.Parameter(torch.empty(graph.accounts, config.embedding_width))
        self.convolution, self.alignment = parts.convolution, parts.alignment
        self.head = nn.Linear(2 * config.capsule_width, graph.items)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                xavier_uniform(parameter, graph.rows if parameter is self.account_embeddings else None)

    def warm_start_tensors(self) -> dict[str, str]:
        items = ("item_embeddings", "head.weight", "head.bias")
        random = [name for name, _ in self.named_buffers() if name.endswith("routing.start")]
        return {"account_embeddings": "accounts", **dict.fromkeys(items, "items"), **dict.fromkeys(random, "whole")}

    @property
    def cuda_graph_safe(self) -> bool:
        return self.graph.has_fixed_width

    @property
    def captured_length(self) -> int:
        return 320  # padding costs these layers little

    @property
    def has_latent_users(self) -> bool:
        return self.convolution.has_latent_users

    @torch.no_grad()
    def start_epoch(self, epoch: int) -> None:
        """Initialise the bases after the first epoch; clusters of an untrained model would be noise."""
        if epoch == 1:
            layers = self.convolution.items(self.item_embeddings, self.account_embeddings)
            self.alignment.start_from(torch.stack(layers).sum(dim=0))

    def encode(self) -> Encoded:
        dropped = dropout(self.item_embeddings, self.config.dropout, self.training)
        layers = self.convolution.items(dropped, self.account_embeddings)  # Eq. 3 to 10
        items = torch.stack(layers).sum(dim=0)  # Eq. 11
        return Encoded(layers, items, *self.alignment(items))  # Eq. 15, 16, 19

    def losses(self, encoded: Encoded, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """The two terms of Eq. 22, both means, so that their relative weight does not depend on the batch."""
        sequences = running_sums(encoded.rows, batch.log, self.config.pooling).flatten(0, 1)  # Eq. 14
        neighbours = self.graph(batch.account, self.account_embeddings)
        accounts = self.convolution.accounts(neighbours, encoded.layers)
        features = torch.cat([rows_of(sequences, batch.at), rows_of(accounts, batch.row)], dim=-1)
        features = dropout_of_targets(features, batch, self.config.dropout, self.training)
        head = (self.head.weight, batch.target, batch.share, self.head.bias)
        terms = {"next_item": linear_cross_entropy(features, *head)}  # Eq. 20, 21
        if self.config.contrast_weight:
            terms["contrast"] = self.config.contrast_weight * self._contrast(encoded, batch)
        return terms  # Eq. 22

    @torch.no_grad()
    def scores(self, encoded: Encoded, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """f(S, A) of Eq. 1 for each item of the domain; for an empty history from the account alone."""
        return self.scores_from(encoded, batch, self.from_graph_and_history(batch), domain)

    @torch.no_grad()
    def fold_in_scores(self, encoded: Encoded, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """Scores whose account neighbours are the items of the history instead of the training graph: for new logs."""
        return self.scores_from(encoded, batch, self.from_history(batch), domain)

    def from_graph_and_history(self, batch: Batch) -> Neighbourhood:
        """The items of an account in the training graph, and those of the history."""
        held = self.graph(batch.account, self.account_embeddings)
        items, known = torch.cat([held.items, batch.history], dim=1), torch.cat([held.known, batch.known], dim=1)
        return Neighbourhood(self._start(batch.account), *distinct(items, known))

    @torch.no_grad()
    def latent_users(self, encoded: Encoded, batch: Batch) -> LatentUsers:
        """The latent users of a history; its distinct items are the neighbours, as in `fold_in_scores`."""
        neighbours = self.from_history(batch)
        ownership, weight = self.convolution.latent_users(neighbours, encoded.layers)  # Eq. 5, 12, normalised over A
        column = columns_of(batch.history, neighbours.items, neighbours.known)[:, None, :]
        ownership = ownership.gather(2, column.expand(-1, ownership.shape[1], -1))
        return LatentUsers(ownership * batch.known[:, None, :], weight)

    def from_history(self, batch: Batch) -> Neighbourhood:
        """The distinct items of the history."""
        return Neighbourhood(self._start(batch.account), *distinct(batch.history, batch.known))

    def _start(self, account: Int[Tensor, "B"]) -> Float[Tensor, "B W"]:
        """The embeddings of accounts; the mean of the training accounts for an unseen one."""
        own, known = self.account_embeddings[account.clamp(min=0)], account >= 0
        if bool(known.all()):
            return own  # the mean passes over all accounts, for every batch
        mean = self.account_embeddings[self.graph.held_offsets.diff() > 0].mean(dim=0)
        return torch.where(known[:, None], own, mean)

    def _sequence(self, encoded: Encoded, batch: Batch) -> Float[Tensor, "B D"]:
        sums = running_sums(encoded.rows, batch.history, self.config.pooling)  # Eq. 14
        row = torch.arange(len(batch.length), device=batch.length.device)
        return sums[row, (batch.length - 1).clamp(min=0)] * (batch.length > 0)[:, None]

    def scores_from(
        self, encoded: Encoded, batch: Batch, neighbours: Neighbourhood, domain: Domain
    ) -> Float[Tensor, "B M"]:
        """Scores from histories and the neighbours of their accounts."""
        accounts = self.convolution.accounts(neighbours, encoded.layers)
        return self._logits(self._sequence(encoded, batch), accounts)[:, domain.start : domain.stop]

    def _logits(self, sequence: Float[Tensor, "B D"], account: Float[Tensor, "B D"]) -> Float[Tensor, "B M"]:
        return self.head(torch.cat([sequence, account], dim=-1))  # Eq. 20, before the softmax

    def _contrast(self, encoded: Encoded, batch: TrainingBatch) -> Float[Tensor, ""]:
        """Eq. 18 as a mean over the events of the batch, or as their sum: each distinct item once, by its count."""
        item, share = batch.items, batch.item_share
        if self.config.contrast_scale == "sum":
            share = share * batch.events
        originals, temperature = rows_of(encoded.items, item), self.config.temperature
        if self.config.negatives == "all":
            return contrast(encoded.refined, originals, item, temperature, share)  # Eq. 17, 18
        own = torch.arange(len(item), device=item.device)
        return contrast(rows_of(encoded.refined, item), originals, own, temperature, share, share == 0)  # Eq. 17, 18


@dataclass(frozen=True)
class Parts:
    """The parts that an ablation replaces."""

    convolution: CapsuleConvolution | PlainConvolution | NoConvolution
    alignment: SubspaceAlignment | NoAlignment
