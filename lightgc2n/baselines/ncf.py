"""NCF (He et al., WWW 2017): GMF, MLP and NeuMF, which joins both.

The inputs are the account, the account and its history, or the newest items.
Shapes: B batch, T history, I queries, C candidates (the target first), N accounts, M items, D width, H width of the
first hidden layer, F features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, linear, relu

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.devices import device_of
from lightgc2n.errors import SettingError
from lightgc2n.layers.holdings import Holdings, even_weights
from lightgc2n.layers.pooling import first_occurrences, pooled_history, pooled_prefixes
from lightgc2n.layers.sampled_losses import candidates_of, mean_softmax, pointwise_loss
from lightgc2n.models.contract import Model

SPREAD = 0.01  # standard deviation of the initial embeddings


@dataclass(frozen=True, slots=True, kw_only=True)
class NCFConfig:
    """The paper's values, and how a history is read."""

    width: int = setting(64, at_least=1, help="Width of the embeddings of each branch [d].")
    layers: int = setting(
        2, at_least=1, at_most=6, help="Hidden layers of the MLP [X]: width, then half of it, and so on."
    )
    feed: str = setting(
        "sequence",
        choices=("account", "sequence", "lastk"),
        help="Input: the account, the account and its history, or the newest items.",
    )
    pooling: str = setting("mean", choices=("mean", "max", "last"), help="How a history is pooled into one vector.")
    newest: int = setting(3, at_least=1, help="Newest items of feed=lastk [k].")
    separate_input_table: bool = setting(False, help="Separate embeddings for the items of the history.")
    dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of the MLP's features dropped in training.")
    account_dropout: float = setting(
        0.1, at_least=0.0, at_most=0.95, help="Share of training queries whose account is hidden."
    )
    negatives: int = setting(4, at_least=1, help="Negatives per target.")
    pretraining: int = setting(0, at_least=0, help="First epochs of neumf in which each branch is trained by itself.")
    loss: str = setting("pointwise", choices=("pointwise", "softmax"), help="softmax is over all items, for gmf alone.")


@dataclass(frozen=True)
class TrainingQueries:
    """Training queries: row `row` of a batch, read up to `place`, must rank the first candidate above the others."""

    row: Int[Tensor, "I"]
    place: Int[Tensor, "I"]
    candidates: Int[Tensor, "I C"]
    luck: Float[Tensor, "I"]  # one random number for each query, so that all branches hide the same accounts


def target_queries(batch: TrainingBatch, holdings: Holdings, wrong: int) -> TrainingQueries:
    """Every target once. Negatives may be in the history, since repeats are possible targets."""
    candidates = candidates_of(batch.target, holdings.catalogue, wrong)
    luck = torch.rand(len(candidates), device=candidates.device)
    return TrainingQueries(batch.row, batch.at % batch.log.shape[1], candidates, luck)


def held_item_queries(batch: TrainingBatch, holdings: Holdings, wrong: int) -> TrainingQueries:
    """Every distinct item of a sequence once, its first event included; negatives are items of other accounts."""
    events = torch.cat([batch.log[:, :1], batch.next_item], dim=1)
    known = torch.cat([batch.seen[:, :1], batch.seen], dim=1)
    row, place = torch.nonzero(first_occurrences(events) & known, as_tuple=True)
    absent = holdings.absent(batch.account[row], wrong)
    candidates = torch.cat([events[row, place][:, None], absent], dim=1)
    return TrainingQueries(row, torch.zeros_like(place), candidates, torch.rand(len(row), device=row.device))


class AccountAlone(nn.Module):
    """The account's embedding; the mean embedding for an unseen account."""

    even: Float[Tensor, "N"]

    def __init__(self, holdings: Holdings, width: int, spread: float) -> None:
        super().__init__()
        self.accounts = nn.Parameter(spread * torch.randn(holdings.accounts, width))
        self.register_buffer("even", even_weights(holdings.offsets), persistent=False)

    def for_queries(
        self, items: Float[Tensor, "M D"], batch: TrainingBatch, queries: TrainingQueries
    ) -> Float[Tensor, "I D"]:
        return embedding(batch.account[queries.row], self.accounts)

    def whole(self, items: Float[Tensor, "M D"], batch: Batch) -> Float[Tensor, "B D"]:
        unseen = self.even @ self.accounts
        return torch.cat([self.accounts, unseen[None]])[batch.account]  # index -1 is the last row


class AccountAndHistory(nn.Module):
    """The account's embedding plus its pooled history; the history alone for an unseen or hidden account."""

    def __init__(self, holdings: Holdings, width: int, spread: float, pooling: str, account_dropout: float) -> None:
        super().__init__()
        self.accounts = nn.Parameter(spread * torch.randn(holdings.accounts, width))
        self.pooling, self.account_dropout = pooling, account_dropout

    def for_queries(
        self, items: Float[Tensor, "M D"], batch: TrainingBatch, queries: TrainingQueries
    ) -> Float[Tensor, "I D"]:
        history = pooled_prefixes(items, batch.log, self.pooling)[queries.row, queries.place]
        named = queries.luck >= self.account_dropout * self.training
        return embedding(batch.account[queries.row], self.accounts) * named[:, None] + history  # p = p_a + pool(S)

    def whole(self, items: Float[Tensor, "M D"], batch: Batch) -> Float[Tensor, "B D"]:
        account = self.accounts[batch.account.clamp(min=0)] * (batch.account >= 0)[:, None]
        return account + pooled_history(items, batch, self.pooling)  # p = p_a + pool(S)


class NewestItems(nn.Module):
    """A linear map of the concatenated newest items; zeros where the log is shorter."""

    back: Int[Tensor, "k"]

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.register_buffer("back", torch.arange(count), persistent=False)
        self.join = nn.Linear(count * width, width)

    def for_queries(
        self, items: Float[Tensor, "M D"], batch: TrainingBatch, queries: TrainingQueries
    ) -> Float[Tensor, "I D"]:
        return self._joined(items, batch.log, queries.row, queries.place)

    def whole(self, items: Float[Tensor, "M D"], batch: Batch) -> Float[Tensor, "B D"]:
        row = torch.arange(len(batch.length), device=batch.length.device)
        return self._joined(items, batch.history, row, batch.length - 1)

    def _joined(
        self, items: Float[Tensor, "M D"], log: Int[Tensor, "B T"], row: Int[Tensor, "I"], place: Int[Tensor, "I"]
    ) -> Float[Tensor, "I D"]:
        at = place[:, None] - self.back
        newest = embedding(log[row[:, None], at.clamp(min=0)], items) * (at >= 0)[..., None]
        return self.join(newest.flatten(start_dim=1))


def tower_widths(config: NCFConfig) -> list[int]:
    """The input of the MLP, two embeddings wide, and its hidden layers: each half as wide as the one before."""
    return [max(1, 2 * config.width // 2**layer) for layer in range(config.layers + 1)]


class Branch(nn.Module):
    """The embeddings and the input of one branch; branches share no tables."""

    def __init__(self, config: NCFConfig, holdings: Holdings) -> None:
        super().__init__()
        shape = (holdings.catalogue, config.width)
        self.items = nn.Parameter(SPREAD * torch.randn(shape))
        self.inputs = nn.Parameter(SPREAD * torch.randn(shape)) if config.separate_input_table else None
        self.feed = _feed(config, holdings)

    def read(self) -> Float[Tensor, "M D"]:
        """The vectors of items in a history."""
        return self.items if self.inputs is None else self.inputs


class Product(Branch):
    """GMF: the element-wise product of the two vectors."""

    def __init__(self, config: NCFConfig, holdings: Holdings) -> None:
        super().__init__(config, holdings)
        self.features = config.width

    def prepared(self) -> Float[Tensor, "M D"]:
        """The part of the items that does not depend on the query."""
        return self.items

    def pairs(
        self, prepared: Float[Tensor, "M D"], query: Float[Tensor, "I D"], candidates: Int[Tensor, "I C"]
    ) -> Float[Tensor, "I C F"]:
        return query[:, None] * embedding(candidates, prepared)  # g = p ⊙ q

    def catalogue(
        self, prepared: Float[Tensor, "M D"], query: Float[Tensor, "B D"], weight: Float[Tensor, "F"]
    ) -> Float[Tensor, "B M"]:
        """w · g for all items: one matrix product."""
        return (query * weight) @ prepared.T


class Tower(Branch):
    """MLP on the concatenation of both vectors, through layers of halving width.

    The first layer is split into a query part and an item part, so that each item is mapped once.
    """

    def __init__(self, config: NCFConfig, holdings: Holdings) -> None:
        super().__init__(config, holdings)
        widths = tower_widths(config)
        self.width, self.features, self.share = config.width, widths[-1], config.dropout
        self.first, *rest = (nn.Linear(before, after) for before, after in pairwise(widths))
        self.rest = nn.ModuleList(rest)
        for layer in (self.first, *rest):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def prepared(self) -> Float[Tensor, "M H"]:
        """The item's part of z_0 W_1 + c_1. Differs: dropout of an item is drawn once a step, not for each pair."""
        return linear(self._dropped(self.items), self.first.weight[:, self.width :], self.first.bias)

    def pairs(
        self, prepared: Float[Tensor, "M H"], query: Float[Tensor, "I D"], candidates: Int[Tensor, "I C"]
    ) -> Float[Tensor, "I C F"]:
        return self._hidden(self._query_part(query)[:, None] + embedding(candidates, prepared))

    def catalogue(
        self, prepared: Float[Tensor, "M H"], query: Float[Tensor, "B D"], weight: Float[Tensor, "F"]
    ) -> Float[Tensor, "B M"]:
        """w · z_X for all items, in blocks: all pairs at once would not fit."""
        part = self._query_part(query)
        size = max(1, device_of(part).logit_bytes // (4 * max(1, part.numel())))
        return torch.cat([self._hidden(part[:, None] + block) @ weight for block in torch.split(prepared, size)], dim=1)

    def _query_part(self, query: Float[Tensor, "I D"]) -> Float[Tensor, "I H"]:
        return linear(self._dropped(query), self.first.weight[:, : self.width])

    def _hidden(self, first: Float[Tensor, "I C H"]) -> Float[Tensor, "I C F"]:
        hidden = self._dropped(relu(first))  # z_1
        for layer in self.rest:
            hidden = self._dropped(relu(layer(hidden)))  # z_l = ReLU(z_(l-1) W_l + c_l)
        return hidden

    def _dropped(self, vectors: Tensor) -> Tensor:
        return dropout(vectors, self.share, self.training)


BRANCHES: dict[str, tuple[type[Product] | type[Tower], ...]] = {
    "gmf": (Product,),
    "mlp": (Tower,),
    "neumf": (Product, Tower),
}


@dataclass(frozen=True)
class Encoded:
    """The precomputed items of each branch."""

    branches: list[Float[Tensor, "M _"]]


class NCF(Model):
    """One or two branches, and a last layer over their features."""

    def __init__(self, name: str, config: NCFConfig, holdings: Holdings) -> None:
        super().__init__()
        if config.loss == "softmax" and name != "gmf":
            raise SettingError(f"{name}: loss=softmax is implemented for gmf alone. Use loss=pointwise, or gmf.")
        self.config, self.holdings = config, holdings
        self.training_queries = held_item_queries if config.feed == "account" else target_queries
        self.branches = nn.ModuleList(branch(config, holdings) for branch in BRANCHES[name])
        features = sum(branch.features for branch in self._parts())
        self.output = nn.Linear(features, 1, bias=config.loss == "pointwise")  # a softmax does not depend on it
        nn.init.uniform_(self.output.weight, -((3 / features) ** 0.5), (3 / features) ** 0.5)
        if config.loss == "pointwise":
            nn.init.zeros_(self.output.bias)
        self.branches_are_apart = False

    @torch.no_grad()
    def start_epoch(self, epoch: int) -> None:
        """Join the pre-trained branches with equal weight, the paper's α = 0.5."""
        pretraining = self.config.pretraining if len(self.branches) > 1 else 0
        self.branches_are_apart = epoch < pretraining
        if epoch == pretraining > 0:
            self.output.weight /= len(self.branches)

    def warm_start_tensors(self) -> dict[str, str]:
        kinds = {"items": "items", "inputs": "items", "accounts": "accounts"}
        names = [name for name, _ in self.branches.named_parameters()]
        return {f"branches.{name}": kinds[last] for name in names if (last := name.split(".")[-1]) in kinds}

    def encode(self) -> Encoded:
        return Encoded([branch.prepared() for branch in self._parts()])

    def losses(self, encoded: Encoded, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        return {"next_item": OBJECTIVES[self.config.loss](self, encoded, batch)}

    @torch.no_grad()
    def scores(self, encoded: Encoded, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """The logits; a sigmoid would only cause ties."""
        weights = torch.split(self.output.weight[0], [branch.features for branch in self._parts()])
        parts = zip(self._parts(), encoded.branches, weights, strict=True)
        sums = [branch.catalogue(items, branch.feed.whole(branch.read(), batch), w) for branch, items, w in parts]
        bias = 0 if self.output.bias is None else self.output.bias
        return (torch.stack(sums).sum(dim=0) + bias)[:, domain.start : domain.stop]  # w · [g ; z_X] + b

    def _parts(self) -> Any:
        return iter(self.branches)


def _pointwise(model: NCF, encoded: Encoded, batch: TrainingBatch) -> Float[Tensor, ""]:
    queries = model.training_queries(batch, model.holdings, model.config.negatives)
    features = [
        branch.pairs(items, branch.feed.for_queries(branch.read(), batch, queries), queries.candidates)
        for branch, items in zip(model._parts(), encoded.branches, strict=True)
    ]
    if model.branches_are_apart:
        weights = torch.split(model.output.weight[0], [part.shape[-1] for part in features])
        alone = zip(features, weights, strict=True)
        return torch.stack([pointwise_loss(part @ weight + model.output.bias) for part, weight in alone]).sum()
    return pointwise_loss(model.output(torch.cat(features, dim=-1)).squeeze(-1))  # w · [g ; z_X] + b


def _full_softmax(model: NCF, encoded: Encoded, batch: TrainingBatch) -> Float[Tensor, ""]:
    """GMF-CE: every target against all items."""
    (branch,), queries = model._parts(), model.training_queries(batch, model.holdings, 0)
    query = branch.feed.for_queries(branch.read(), batch, queries) * model.output.weight[0]
    return mean_softmax(query, encoded.branches[0], queries.candidates[:, 0])


OBJECTIVES = {"pointwise": _pointwise, "softmax": _full_softmax}


def _feed(config: NCFConfig, holdings: Holdings) -> AccountAlone | AccountAndHistory | NewestItems:
    if config.feed == "account":
        return AccountAlone(holdings, config.width, SPREAD)
    if config.feed == "lastk":
        return NewestItems(config.newest, config.width)
    return AccountAndHistory(holdings, config.width, SPREAD, config.pooling, config.account_dropout)


def build_ncf(name: str, config: NCFConfig, train: Training) -> NCF:
    """Build GMF, MLP or NeuMF."""
    return NCF(name, config, Holdings.of(train))


def restore_ncf(name: str, config: NCFConfig, tensors: Mapping[str, Tensor]) -> NCF:
    """Rebuild the model from its saved tensors."""
    model = NCF(name, config, Holdings.restored(tensors, len(tensors["branches.0.items"])))
    model.load_state_dict(dict(tensors))
    return model
