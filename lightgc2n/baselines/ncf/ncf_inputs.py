"""Inputs of NCF: the account, the account and its history, or the newest items; and the training queries of each.

Shapes: B batch, T history, I queries, C candidates, the target first, N accounts, M items, D width.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.layers.holdings import Holdings, even_weights
from lightgc2n.layers.pooling import first_occurrences, pooled_history, pooled_prefixes
from lightgc2n.layers.sampled_losses import candidates_of


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
