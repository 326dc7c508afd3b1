"""LightGCN (He et al., SIGIR 2020): linear propagation over the account-item graph.

Shapes: B batch, T history, I queries, C candidates, N accounts, M items, D width.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.errors import SettingError
from lightgc2n.graph.sequential import Edges, build_graph
from lightgc2n.layers.holdings import even_weights
from lightgc2n.layers.pooling import distinct, first_occurrences, pooled_events
from lightgc2n.layers.sampled_losses import candidates_of, softmax_loss
from lightgc2n.layers.sparse import WeightedSum
from lightgc2n.models.contract import Model

SPREAD = 0.1  # standard deviation of the initial embeddings; better than Xavier's without a non-linearity

# feed -> weight of the account's node, of its folded-in history, and whether an unseen account is the mean
FEEDS = {"account": (1.0, 0.0, True), "sequence": (0.0, 1.0, False), "account+sequence": (1.0, 1.0, False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LightGCNConfig:
    """The paper's symbols in brackets."""

    width: int = setting(64, at_least=1, help="Width of the embeddings [d].")
    layers: int = setting(3, at_least=0, at_most=8, help="Propagations [K]; 0 is matrix factorisation.")
    feed: str = setting(
        "account+sequence", choices=tuple(FEEDS), help="Score with the account's node, its folded-in history, or both."
    )
    negatives: int = setting(1, at_least=1, help="Negatives per target: 1 is BPR, more are a sampled softmax.")
    penalty: float = setting(1e-4, at_least=0.0, help="Weight of the squared embeddings of a batch [λ].")


@dataclass(frozen=True)
class Smoothed:
    """The means over all layers, and the contribution of each item to a folded-in account."""

    items: Float[Tensor, "M D"]
    accounts: Float[Tensor, "N D"]
    contributions: Float[Tensor, "M D"]


class Propagation(nn.Module):
    """Propagation on the account-item graph; its edges are saved with the weights."""

    item_degrees: Float[Tensor, "M"]
    even: Float[Tensor, "N"]  # weights of the mean over accounts with items

    def __init__(self, held: Edges, layers: int) -> None:
        super().__init__()
        self.layers = layers
        self.to_accounts, self.to_items = WeightedSum(held), WeightedSum(held.transposed())  # both halves of Ã
        for name, array in (("offsets", held.offsets), ("columns", held.columns), ("weights", held.weights)):
            self.register_buffer(name, torch.from_numpy(array))
        degrees = torch.bincount(torch.from_numpy(held.columns), minlength=held.width)
        self.register_buffer("item_degrees", degrees.clamp(min=1).float(), persistent=False)
        self.register_buffer("even", even_weights(torch.from_numpy(held.offsets)), persistent=False)

    def forward(self, items: Float[Tensor, "M D"], accounts: Float[Tensor, "N D"]) -> Smoothed:
        item_total, account_total, below = items, accounts, torch.zeros_like(items)
        for _ in range(self.layers):
            below = below + items
            items, accounts = self.to_items(accounts), self.to_accounts(items)  # E(k+1) = Ã E(k)
            item_total, account_total = item_total + items, account_total + accounts
        share = 1 / (self.layers + 1)
        contributions = below * self.item_degrees.rsqrt()[:, None]  # e_i(k) / sqrt(|N(i)|), summed over k < K
        return Smoothed(share * item_total, share * account_total, share * contributions)  # E = Σ E(k) / (K + 1)


@dataclass(frozen=True)
class Encoded:
    """All that does not depend on the batch; the last row of `accounts`, index -1, is that of unseen accounts."""

    items: Float[Tensor, "M D"]
    accounts: Float[Tensor, "N_and_one D"]
    contributions: Float[Tensor, "M D"]


class LightGCN(Model):
    """The model; `feed` selects the account's node, its history, or both."""

    rho: Float[Tensor, ""]

    def __init__(self, config: LightGCNConfig, held: Edges) -> None:
        super().__init__()
        if config.feed == "sequence" and config.layers == 0:
            raise SettingError(
                "lightgcn: feed=sequence needs at least one layer. Use feed=account, or layers=1 or more."
            )
        self.config = config
        self.propagation = Propagation(held, config.layers)
        self.item_embeddings = nn.Parameter(SPREAD * torch.randn(held.width, config.width))
        self.account_embeddings = nn.Parameter(SPREAD * torch.randn(len(held.offsets) - 1, config.width))
        self.account_weight, rho, self.unseen_is_mean = FEEDS[config.feed]
        if config.feed == "account+sequence":
            self.rho = nn.Parameter(torch.tensor(rho))
        else:
            self.register_buffer("rho", torch.tensor(rho))

    def warm_start_tensors(self) -> dict[str, str]:
        return {"item_embeddings": "items", "account_embeddings": "accounts"}

    def encode(self) -> Encoded:
        smoothed = self.propagation(self.item_embeddings, self.account_embeddings)
        average = self.propagation.even @ smoothed.accounts
        accounts = torch.cat([smoothed.accounts, self.unseen_is_mean * average[None]])
        return Encoded(smoothed.items, accounts, smoothed.contributions)

    def losses(self, encoded: Encoded, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        account = batch.account[batch.row]
        folded = folded_prefixes(encoded.contributions, batch).flatten(0, 1).index_select(0, batch.at)
        query = self._query(embedding(account, encoded.accounts), folded)
        candidates = candidates_of(batch.target, len(encoded.items), self.config.negatives)
        scores = torch.einsum("id,icd->ic", query, embedding(candidates, encoded.items))  # s(a, i) = e_a · e_i
        squares = _squares(self.account_embeddings, account) + _squares(self.item_embeddings, candidates)
        penalty = self.config.penalty / 2 * squares / max(1, len(candidates))
        return {"next_item": softmax_loss(scores), "penalty": penalty}  # L

    @torch.no_grad()
    def scores(self, encoded: Encoded, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        folded = folded_history(encoded.contributions, batch)
        query = self._query(encoded.accounts[batch.account], folded)
        return (query @ encoded.items.T)[:, domain.start : domain.stop]

    @torch.no_grad()
    def fold_in_scores(self, encoded: Encoded, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """Scores whose account neighbours are the items of the history instead of the training items."""
        folded = folded_history(encoded.contributions, batch)
        start = self.account_embeddings[batch.account.clamp(min=0)] * (batch.account >= 0)[:, None]
        query = self._query(start / (self.config.layers + 1) + folded, folded)
        return (query @ encoded.items.T)[:, domain.start : domain.stop]

    def _query(self, account: Float[Tensor, "I D"], folded: Float[Tensor, "I D"]) -> Float[Tensor, "I D"]:
        return self.account_weight * account + self.rho * folded  # e_a + ρ e_S


def _squares(table: Float[Tensor, "R D"], rows: Int[Tensor, "..."]) -> Float[Tensor, ""]:
    """The sum of the squared lengths of the given rows, with repeats."""
    return table.square().sum(dim=1).index_select(0, rows.flatten()).sum()


def folded_history(contributions: Float[Tensor, "M D"], batch: Batch) -> Float[Tensor, "B D"]:
    """The vector of a node whose neighbours are the distinct items of a history, without an embedding of its own."""
    items, known = distinct(batch.history, batch.known)
    count = known.sum(dim=1, keepdim=True).clamp(min=1)
    return pooled_events(contributions, items, known, "sum") * count.rsqrt()  # e_S


def folded_prefixes(contributions: Float[Tensor, "M D"], batch: TrainingBatch) -> Float[Tensor, "B T D"]:
    """`folded_history` at every place of every log."""
    first = first_occurrences(batch.log)[..., None]
    return (embedding(batch.log, contributions) * first).cumsum(dim=1) * first.cumsum(dim=1).rsqrt()  # e_S


def build_lightgcn(config: LightGCNConfig, train: Training) -> LightGCN:
    """Build the model on the graph of all training events, training targets included."""
    return LightGCN(config, build_graph(train).items_of_account)


def restore_lightgcn(config: LightGCNConfig, tensors: Mapping[str, Tensor]) -> LightGCN:
    """Rebuild the model from its saved tensors."""
    offsets, columns, weights = (tensors[f"propagation.{part}"].numpy() for part in ("offsets", "columns", "weights"))
    model = LightGCN(config, Edges(offsets, columns, weights, len(tensors["item_embeddings"])))
    model.load_state_dict(dict(tensors))
    return model
