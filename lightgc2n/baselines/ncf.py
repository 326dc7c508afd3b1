"""NCF (He et al., WWW 2017): GMF, MLP and NeuMF, which is both side by side.

Shapes: B batch, I questions, C candidates, N accounts, M items, D width, H width of the first hidden layer, F features.
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
from lightgc2n.errors import SettingError
from lightgc2n.layers.crossentropy import BLOCK_BYTES
from lightgc2n.layers.feeds import AccountAlone, AccountAndHistory, NewestItems, ask_for_holdings, ask_for_targets
from lightgc2n.layers.holdings import Holdings
from lightgc2n.layers.pairwise import pointwise_loss
from lightgc2n.layers.sampled import mean_softmax
from lightgc2n.models.contract import Model

SPREAD = 0.01  # of the first embeddings


@dataclass(frozen=True, slots=True, kw_only=True)
class NCFConfig:
    """The paper's values, and the reading of a history."""

    width: int = setting(64, at_least=1, help="Width of the embeddings of each branch [d].")
    layers: int = setting(
        2, at_least=1, at_most=6, help="Hidden layers of the MLP [X]: width, then half of it, and so on."
    )
    feed: str = setting("sequence", choices=("account", "sequence", "lastk"), help="What a question shows.")
    pooling: str = setting("mean", choices=("mean", "max", "last"), help="How a history becomes one vector.")
    newest: int = setting(3, at_least=1, help="Items that feed=lastk shows [k].")
    separate_input_table: bool = setting(False, help="Items of the history have embeddings of their own.")
    dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of the MLP's features dropped in training.")
    account_dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of questions without account.")
    negatives: int = setting(4, at_least=1, help="Wrong items a target.")
    loss: str = setting("pointwise", choices=("pointwise", "softmax"), help="softmax is over all items, for gmf alone.")


def tower_widths(config: NCFConfig) -> list[int]:
    """The input of the MLP, two embeddings wide, and its hidden layers: each half as wide as the one before."""
    return [max(1, 2 * config.width // 2**layer) for layer in range(config.layers + 1)]


def parameter_count(name: str, config: NCFConfig, accounts: int, items: int) -> int:
    """GMF (N + M)·D + D + 1, MLP (N + M)·D + Σ (in·out + out) + F + 1; NeuMF both, with one bias at the end.

    `lastk` has k·D² + D in place of N·D, a separate input table M·D more, and a softmax no last bias.
    """
    width, tower = config.width, tower_widths(config)
    asking = config.newest * width**2 + width if config.feed == "lastk" else accounts * width
    tables = asking + items * width * (1 + config.separate_input_table)
    hidden = sum(before * after + after for before, after in pairwise(tower))
    size = {Product: tables + width, Tower: tables + hidden + tower[-1]}
    return sum(size[branch] for branch in BRANCHES[name]) + (config.loss == "pointwise")


class Branch(nn.Module):
    """Tables of one branch, which shares them with nobody, and who asks in it."""

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
        """What of all items does not depend on who asks."""
        return self.items

    def pairs(
        self, prepared: Float[Tensor, "M D"], asking: Float[Tensor, "I D"], candidates: Int[Tensor, "I C"]
    ) -> Float[Tensor, "I C F"]:
        return asking[:, None] * embedding(candidates, prepared)  # g = p ⊙ q

    def catalogue(
        self, prepared: Float[Tensor, "M D"], asking: Float[Tensor, "B D"], weight: Float[Tensor, "F"]
    ) -> Float[Tensor, "B M"]:
        """w · g for all items: one matrix product."""
        return (asking * weight) @ prepared.T


class Tower(Branch):
    """MLP: both vectors side by side, through layers that halve.

    The first layer splits into the part of who asks and the part of the item, so that items are mapped once.
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
        """The item's part of z_0 W_1 + c_1. Differs: an item's dropout is drawn once a step, not once a pair."""
        return linear(self._dropped(self.items), self.first.weight[:, self.width :], self.first.bias)

    def pairs(
        self, prepared: Float[Tensor, "M H"], asking: Float[Tensor, "I D"], candidates: Int[Tensor, "I C"]
    ) -> Float[Tensor, "I C F"]:
        return self._hidden(self._asking(asking)[:, None] + embedding(candidates, prepared))

    def catalogue(
        self, prepared: Float[Tensor, "M H"], asking: Float[Tensor, "B D"], weight: Float[Tensor, "F"]
    ) -> Float[Tensor, "B M"]:
        """w · z_X for all items, a block of them at a time: all pairs at once would not fit."""
        part = self._asking(asking)
        size = max(1, BLOCK_BYTES[part.device.type] // (4 * max(1, part.numel())))
        return torch.cat([self._hidden(part[:, None] + block) @ weight for block in torch.split(prepared, size)], dim=1)

    def _asking(self, asking: Float[Tensor, "I D"]) -> Float[Tensor, "I H"]:
        return linear(self._dropped(asking), self.first.weight[:, : self.width])

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
    """What each branch prepares of all items."""

    branches: list[Float[Tensor, "M _"]]


class NCF(Model):
    """One or two branches, and a last layer over their features."""

    def __init__(self, name: str, config: NCFConfig, holdings: Holdings) -> None:
        super().__init__()
        if config.loss == "softmax" and name != "gmf":
            raise SettingError(f"{name}: loss=softmax needs one matrix product for all items. Use pointwise, or gmf.")
        self.config, self.holdings = config, holdings
        self.ask = ask_for_holdings if config.feed == "account" else ask_for_targets
        self.branches = nn.ModuleList(branch(config, holdings) for branch in BRANCHES[name])
        features = sum(branch.features for branch in self._parts())
        self.output = nn.Linear(features, 1, bias=config.loss == "pointwise")  # a softmax is blind to it
        nn.init.uniform_(self.output.weight, -((3 / features) ** 0.5), (3 / features) ** 0.5)
        if config.loss == "pointwise":
            nn.init.zeros_(self.output.bias)

    def carried(self) -> dict[str, str]:
        kinds = {"items": "items", "inputs": "items", "accounts": "accounts"}
        names = [name for name, _ in self.branches.named_parameters()]
        return {f"branches.{name}": kinds[last] for name in names if (last := name.split(".")[-1]) in kinds}

    def encode(self) -> Encoded:
        return Encoded([branch.prepared() for branch in self._parts()])

    def losses(self, encoded: Encoded, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        return {"next_item": OBJECTIVES[self.config.loss](self, encoded, batch)}

    @torch.no_grad()
    def scores(self, encoded: Encoded, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """The last layer before its sigmoid, which would only make ties."""
        weights = torch.split(self.output.weight[0], [branch.features for branch in self._parts()])
        parts = zip(self._parts(), encoded.branches, weights, strict=True)
        sums = [branch.catalogue(items, branch.feed.whole(branch.read(), batch), w) for branch, items, w in parts]
        bias = 0 if self.output.bias is None else self.output.bias
        return (torch.stack(sums).sum(dim=0) + bias)[:, domain.start : domain.stop]  # w · [g ; z_X] + b

    @torch.no_grad()
    def start_from(self, gmf: "NCF", mlp: "NCF") -> None:
        """Pre-training of NeuMF: the branches of a trained GMF and MLP, each of which has half a say at first."""
        for own, trained in zip(self.branches, (gmf, mlp), strict=True):
            own.load_state_dict(trained.branches[0].state_dict())
        self.output.weight.copy_(torch.cat([gmf.output.weight, mlp.output.weight], dim=1) / 2)
        self.output.bias.copy_((gmf.output.bias + mlp.output.bias) / 2)

    def _parts(self) -> Any:
        return iter(self.branches)


def _pointwise(model: NCF, encoded: Encoded, batch: TrainingBatch) -> Float[Tensor, ""]:
    questions = model.ask(batch, model.holdings, model.config.negatives)
    features = [
        branch.pairs(items, branch.feed.asked(branch.read(), batch, questions), questions.candidates)
        for branch, items in zip(model._parts(), encoded.branches, strict=True)
    ]
    return pointwise_loss(model.output(torch.cat(features, dim=-1)).squeeze(-1))  # w · [g ; z_X] + b


def _full_softmax(model: NCF, encoded: Encoded, batch: TrainingBatch) -> Float[Tensor, ""]:
    """GMF-CE: every target against all items."""
    (branch,), questions = model._parts(), model.ask(batch, model.holdings, 0)
    asking = branch.feed.asked(branch.read(), batch, questions) * model.output.weight[0]
    return mean_softmax(asking, encoded.branches[0], questions.candidates[:, 0])


OBJECTIVES = {"pointwise": _pointwise, "softmax": _full_softmax}


def _feed(config: NCFConfig, holdings: Holdings) -> AccountAlone | AccountAndHistory | NewestItems:
    if config.feed == "account":
        return AccountAlone(holdings, config.width, SPREAD)
    if config.feed == "lastk":
        return NewestItems(config.newest, config.width)
    return AccountAndHistory(holdings, config.width, SPREAD, config.pooling, config.account_dropout)


def build_ncf(name: str, config: NCFConfig, train: Training) -> NCF:
    """GMF, MLP or NeuMF for these training events."""
    return NCF(name, config, Holdings.of(train))


def restore_ncf(name: str, config: NCFConfig, tensors: Mapping[str, Tensor]) -> NCF:
    """The model that these tensors were saved from."""
    model = NCF(name, config, Holdings.restored(tensors, len(tensors["branches.0.items"])))
    model.load_state_dict(dict(tensors))
    return model
