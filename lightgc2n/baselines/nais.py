"""NAIS (He et al., TKDE 2018): the items of a history vote for a candidate, and attention weights the votes.

The voters are the newest events of a history, its distinct items, or all items of the account.
Shapes: B batch, T history, I queries, C candidates, L items that vote (padded), U distinct items that vote, M items,
D width, A width of the attention.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding, embedding_bag, linear, relu
from torch.utils.checkpoint import checkpoint

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch, histories_before
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.devices import device_of
from lightgc2n.errors import SettingError
from lightgc2n.layers.holdings import Holdings
from lightgc2n.layers.pooling import distinct
from lightgc2n.layers.sampled_losses import LOSSES, candidates_of
from lightgc2n.layers.sparse import entries_of
from lightgc2n.models.contract import Model

SPREAD = 0.01  # standard deviation of the initial embeddings
STRONGEST = 15.0  # bound of |f|: e^15 is finite in any sum, and e^-15 distinguishes any sum from an empty one


@dataclass(frozen=True, slots=True, kw_only=True)
class NAISConfig:
    """The authors' values; the paper's symbols in brackets."""

    width: int = setting(16, at_least=1, help="Width of the embeddings [d].")
    attention: str = setting("prod", choices=("prod", "concat", "none"), help="How votes are weighted; none is FISM.")
    attention_width: int = setting(16, at_least=1, help="Hidden width of the attention [a].")
    smoothing: float = setting(
        0.5, at_least=0.0, at_most=1.0, help="Exponent of the sum of weights; 1 is a softmax [β]."
    )
    length_exponent: float = setting(
        0.0, at_least=0.0, at_most=1.0, help="Exponent of the length of the history that scores are divided by [α]."
    )
    feed: str = setting(
        "sequence",
        choices=("sequence", "set", "account"),
        help="Voters: events, distinct items, or all items of the account.",
    )
    exclude_self: bool = setting(False, help="No item votes for itself, as in the paper.")
    max_length: int = setting(300, at_least=1, help="Newest events that vote.")
    negatives: int = setting(4, at_least=1, help="Negatives per target.")
    loss: str = setting(
        "pointwise", choices=tuple(LOSSES), help="Binary cross-entropy of each candidate, or a softmax over them."
    )
    item_penalty: float = setting(0.0, at_least=0.0, help="Weight of the squared embeddings of all items.")
    pretraining: int = setting(0, at_least=0, help="First epochs in which all votes count equally, as in FISM.")
    attention_penalty: float = setting(1e-6, at_least=0.0, help="Weight of the squared attention matrix.")


VotersAndMask = tuple[Int[Tensor, "I L"], Bool[Tensor, "I L"]]


class RecentEvents(nn.Module):
    """The newest events of a log, the newest first; longer logs are cut."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def lengths(self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"]) -> Int[Tensor, "I"]:
        """An upper bound of the number of voters at each place of a training batch."""
        return (place + 1).clamp(max=self.most)

    def at_places(
        self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"], width: int
    ) -> tuple[Int[Tensor, "I L"], Bool[Tensor, "I L"]]:
        """The voters at each place, and a mask."""
        return self._selected(*histories_before(batch.log, row, place, width, newest_first=True))

    def whole(self, batch: Batch) -> tuple[Int[Tensor, "B L"], Bool[Tensor, "B L"]]:
        """The voters of each history, and a mask."""
        row = torch.arange(len(batch.length), device=batch.length.device)
        return self._selected(*histories_before(batch.history, row, batch.length - 1, self.most, newest_first=True))

    def _selected(self, items: Int[Tensor, "I L"], known: Bool[Tensor, "I L"]) -> VotersAndMask:
        return items, known


class RecentItems(RecentEvents):
    """The distinct items among the newest events."""

    def _selected(self, items: Int[Tensor, "I L"], known: Bool[Tensor, "I L"]) -> VotersAndMask:
        return distinct(items, known)


class HeldItems(nn.Module):
    """All items of the account in training and its recent items, each once."""

    def __init__(self, most: int, holdings: Holdings) -> None:
        super().__init__()
        self.recent, self.holdings = RecentEvents(most), holdings

    def lengths(self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"]) -> Int[Tensor, "I"]:
        """An upper bound of the number of voters; training events are items of the account already."""
        return self.holdings.offsets.diff()[batch.account[row]]

    def at_places(
        self, batch: TrainingBatch, row: Int[Tensor, "I"], place: Int[Tensor, "I"], width: int
    ) -> tuple[Int[Tensor, "I L"], Bool[Tensor, "I L"]]:
        return self.holdings.padded(batch.account[row], width)

    def whole(self, batch: Batch) -> tuple[Int[Tensor, "B L"], Bool[Tensor, "B L"]]:
        account = batch.account.clamp(min=0)
        widest = int((self.holdings.offsets.diff()[account] * (batch.account >= 0)).max())
        parts = self.holdings.padded(batch.account, widest), self.recent.whole(batch)
        items, known = (torch.cat(pair, dim=1) for pair in zip(*parts, strict=True))
        return distinct(items, known)


class ProductAttention(nn.Module):
    """Attention on the product of voter and candidate."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        spread = (2 / (width + inputs)) ** 0.5
        self.weight = nn.Parameter(_truncated((width, inputs), spread))
        self.bias = nn.Parameter(_truncated((width,), spread))
        self.out = nn.Parameter(torch.ones(width))

    def forward(self, candidate: Float[Tensor, "*#pairs D"], voter: Float[Tensor, "*#pairs D"]) -> Tensor:
        return relu(linear(candidate * voter, self.weight, self.bias)) @ self.out  # f, prod


class ConcatAttention(ProductAttention):
    """Attention on the concatenation of voter and candidate."""

    def forward(self, candidate: Float[Tensor, "*#pairs D"], voter: Float[Tensor, "*#pairs D"]) -> Tensor:
        for_candidate, for_voter = torch.tensor_split(self.weight, 2, dim=1)
        # W [p ; q] = W_p p + W_q q: each side is mapped once, whatever it is paired with.
        return relu(linear(candidate, for_candidate, self.bias) + linear(voter, for_voter)) @ self.out  # f, concat


class EvenAttention(nn.Module):
    """Equal weights: FISM."""

    def forward(self, candidate: Float[Tensor, "*#pairs D"], voter: Float[Tensor, "*#pairs D"]) -> Tensor:
        return torch.zeros_like((candidate * voter)[..., 0])


class Voters:
    """The voters of a batch of histories, and the distinct items among them."""

    def __init__(self, items: Int[Tensor, "B L"], known: Bool[Tensor, "B L"]) -> None:
        self.distinct, self.voter = torch.unique(items[known], return_inverse=True)
        self.count = known.sum(dim=1)
        self.offsets = torch.cat([self.count.new_zeros(1), self.count.cumsum(dim=0)])

    def sums(self, table: Float[Tensor, "U m"]) -> Float[Tensor, "B m"]:
        """The sum of the rows of the voters of each history."""
        return embedding_bag(self.voter, table, self.offsets, mode="sum", include_last_offset=True)


class NAIS(Model):
    """The model; `attention` and `feed` select its parts."""

    def __init__(self, config: NAISConfig, items: int, holdings: Holdings | None) -> None:
        super().__init__()
        if config.feed == "account" and not config.exclude_self:
            raise SettingError("nais: with feed=account the target is among the voters. Set nais.exclude_self=true.")
        self.config = config
        self.candidates = nn.Parameter(_truncated((items, config.width), SPREAD))
        self.voters = nn.Parameter(_truncated((items, config.width), SPREAD))
        self.item_bias = nn.Parameter(torch.zeros(items))
        self.attention = _attention(config)
        self.smoothing = config.smoothing if config.attention != "none" else 0.0
        self.history = _history(config, holdings)
        self.votes_are_equal = False

    def start_epoch(self, epoch: int) -> None:
        """FISM, the model with equal votes, is trained before the attention."""
        self.votes_are_equal = epoch < self.config.pretraining

    def warm_start_tensors(self) -> dict[str, str]:
        return dict.fromkeys(("candidates", "voters", "item_bias"), "items")

    def encode(self) -> None:
        """Nothing to precompute: the table of all pairs would not fit into memory."""

    def losses(self, encoded: None, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        row, place = batch.row, batch.at % batch.log.shape[1]
        lengths, order = self.history.lengths(batch, row, place).sort(descending=True, stable=True)
        row, place = row[order], place[order]
        candidates = candidates_of(batch.target[order], len(self.candidates), self.config.negatives)
        scores = [self.item_bias.new_zeros(0, candidates.shape[1])]
        for part, width in self._blocks(lengths, candidates.shape[1]):
            arguments = (batch, row[part], place[part], candidates[part], width)
            # Checkpointed: the backward pass recomputes each block, since all pairs would not fit.
            scores.append(checkpoint(self._query_scores, *arguments, use_reentrant=False, preserve_rng_state=False))
        return {"next_item": LOSSES[self.config.loss](torch.cat(scores)), "penalty": self._penalty()}

    def _penalty(self) -> Float[Tensor, ""]:
        tables = self.candidates.square().sum() + self.voters.square().sum()
        matrix = sum(value.square().sum() for name, value in self.attention.named_parameters() if name == "weight")
        return self.config.item_penalty * tables + self.config.attention_penalty * matrix

    def _query_scores(
        self,
        batch: TrainingBatch,
        row: Int[Tensor, "I"],
        place: Int[Tensor, "I"],
        candidates: Int[Tensor, "I C"],
        width: int,
    ) -> Float[Tensor, "I C"]:
        return self.of_pairs(candidates, *self.history.at_places(batch, row, place, width))

    def of_pairs(
        self, candidates: Int[Tensor, "I C"], items: Int[Tensor, "I L"], known: Bool[Tensor, "I L"]
    ) -> Float[Tensor, "I C"]:
        """The scores of the given candidates for each history."""
        candidate, voter = embedding(candidates, self.candidates), embedding(items, self.voters)
        counted = known[:, None, :].expand(-1, candidates.shape[1], -1)
        if self.config.exclude_self:
            counted = counted & (items[:, None, :] != candidates[:, :, None])
        strength = self._strength(candidate[:, :, None], voter[:, None]) * counted
        votes = strength * (candidate @ voter.transpose(1, 2))
        bias = entries_of(self.item_bias, candidates)
        return self._scores(votes.sum(dim=-1), strength.sum(dim=-1), counted.sum(dim=-1)) + bias

    @torch.no_grad()
    def scores(self, encoded: None, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        voters = Voters(*self.history.whole(batch))
        every = torch.arange(len(self.candidates), device=self.candidates.device)
        blocks = torch.split(every, max(1, self._pairs_at_once // max(1, len(voters.distinct))))
        parts = zip(*(self._votes(voters, block) for block in blocks), strict=True)
        votes, strength, count = (torch.cat(part, dim=1) for part in parts)
        return (self._scores(votes, strength, count) + self.item_bias)[:, domain.start : domain.stop]

    @torch.no_grad()
    def fold_in_scores(self, encoded: None, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """Scores from the history alone, which differ where all items of the account vote."""
        return self.scores(encoded, batch.without_account, domain)

    def _votes(self, voters: Voters, block: Int[Tensor, "m"]) -> tuple[Tensor, Tensor, Tensor]:
        """The weighted votes of each history for the candidates, the sums of the weights, and the numbers of voters."""
        candidate, voter = self.candidates[block], self.voters[voters.distinct]
        strength = self._strength(candidate, voter[:, None])  # Eᵀ: each pair once for all histories
        count = voters.count[:, None].expand(-1, len(block))
        if self.config.exclude_self:
            # Excluded before the sums: subtracting a vote afterwards would leave a rounding error.
            counted = (voters.distinct[:, None] != block).to(strength.dtype)
            strength, count = strength * counted, voters.sums(counted)
        return voters.sums(strength * (voter @ candidate.T)), voters.sums(strength), count  # H Gᵀ and H Eᵀ

    def _strength(self, candidate: Float[Tensor, "*#pairs D"], voter: Float[Tensor, "*#pairs D"]) -> Tensor:
        if self.votes_are_equal and self.training:
            return torch.ones_like((candidate * voter)[..., 0])
        return self.attention(candidate, voter).clamp(-STRONGEST, STRONGEST).exp()  # exp f(i, j)

    def _scores(self, votes: Float[Tensor, "I C"], strength: Float[Tensor, "I C"], count: Tensor) -> Tensor:
        """Σ w_ij (q_j · p_i) / |S|^α with w_ij = exp f / [Σ exp f]^β; 0 without voters."""
        weighed = votes / strength.clamp(min=math.exp(-STRONGEST)).pow(self.smoothing)  # w
        return weighed * count.clamp(min=1).to(votes.dtype).pow(-self.config.length_exponent)  # s

    def _blocks(self, lengths: Int[Tensor, "I"], candidates: int) -> Iterator[tuple[slice, int]]:
        """Blocks of queries with similar numbers of voters, the longest first, each small when padded."""
        widths, first = lengths.tolist(), 0
        while first < len(widths):
            width = max(1, widths[first])
            last = first + max(1, self._pairs_at_once // (width * candidates))
            yield slice(first, last), width
            first = last

    @property
    def _pairs_at_once(self) -> int:
        return device_of(self.candidates).pairs_at_once


def _attention(config: NAISConfig) -> nn.Module:
    if config.attention == "none":
        return EvenAttention()
    if config.attention == "concat":
        return ConcatAttention(2 * config.width, config.attention_width)
    return ProductAttention(config.width, config.attention_width)


def _history(config: NAISConfig, holdings: Holdings | None) -> Any:
    if holdings is not None:
        return HeldItems(config.max_length, holdings)
    return {"sequence": RecentEvents, "set": RecentItems}[config.feed](config.max_length)


def _truncated(shape: tuple[int, ...], spread: float) -> Tensor:
    return nn.init.trunc_normal_(torch.empty(shape), std=spread, a=-2 * spread, b=2 * spread)


def build_nais(config: NAISConfig, train: Training) -> NAIS:
    """Build the model; training events are kept only if all items of an account vote."""
    return NAIS(config, train.items, Holdings.of(train) if config.feed == "account" else None)


def restore_nais(config: NAISConfig, tensors: Mapping[str, Tensor]) -> NAIS:
    """Rebuild the model from its saved tensors."""
    items = len(tensors["item_bias"])
    held = {name.removeprefix("history."): tensor for name, tensor in tensors.items() if "holdings." in name}
    model = NAIS(config, items, Holdings.restored(held, items) if held else None)
    model.load_state_dict(dict(tensors))
    return model
