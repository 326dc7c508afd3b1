"""Who asks: an account alone, an account with its history, or the newest items; and what it is asked in training.

Shapes: B batch, T history, I questions, C candidates with the right one in front, N accounts, M items, D width.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.layers.holdings import Holdings, even_weights
from lightgc2n.layers.pairwise import candidates_of
from lightgc2n.layers.pooling import first_occurrences, pooled_history, pooled_prefixes


@dataclass(frozen=True)
class Questions:
    """Row `row` of a training batch, read up to `place`, must tell the first candidate from the others."""

    row: Int[Tensor, "I"]
    place: Int[Tensor, "I"]
    candidates: Int[Tensor, "I C"]
    luck: Float[Tensor, "I"]  # drawn once a question, so that all who read it hide the same accounts


def ask_for_targets(batch: TrainingBatch, holdings: Holdings, wrong: int) -> Questions:
    """Every target once. Wrong items may stand in the history: repeats are answers like any other."""
    candidates = candidates_of(batch.target, holdings.catalogue, wrong)
    luck = torch.rand(len(candidates), device=candidates.device)
    return Questions(batch.row, batch.at % batch.log.shape[1], candidates, luck)


def ask_for_holdings(batch: TrainingBatch, holdings: Holdings, wrong: int) -> Questions:
    """Every distinct item of a sequence once, its first event included; no wrong item is one that the account holds."""
    events = torch.cat([batch.log[:, :1], batch.next_item], dim=1)
    known = torch.cat([batch.seen[:, :1], batch.seen], dim=1)
    row, place = torch.nonzero(first_occurrences(events) & known, as_tuple=True)
    absent = holdings.absent(batch.account[row], wrong)
    candidates = torch.cat([events[row, place][:, None], absent], dim=1)
    return Questions(row, torch.zeros_like(place), candidates, torch.rand(len(row), device=row.device))


class AccountAlone(nn.Module):
    """The account's vector, whatever its history; a stranger is the mean of the accounts in training."""

    even: Float[Tensor, "N"]

    def __init__(self, holdings: Holdings, width: int, spread: float) -> None:
        super().__init__()
        self.accounts = nn.Parameter(spread * torch.randn(holdings.accounts, width))
        self.register_buffer("even", even_weights(holdings.offsets), persistent=False)

    def asked(self, items: Float[Tensor, "M D"], batch: TrainingBatch, questions: Questions) -> Float[Tensor, "I D"]:
        return embedding(batch.account[questions.row], self.accounts)

    def whole(self, items: Float[Tensor, "M D"], batch: Batch) -> Float[Tensor, "B D"]:
        stranger = self.even @ self.accounts
        return torch.cat([self.accounts, stranger[None]])[batch.account]  # number -1 finds the last row


class AccountAndHistory(nn.Module):
    """The account's vector plus its pooled history; a stranger has the history alone, and training shows such too."""

    def __init__(self, holdings: Holdings, width: int, spread: float, pooling: str, account_dropout: float) -> None:
        super().__init__()
        self.accounts = nn.Parameter(spread * torch.randn(holdings.accounts, width))
        self.pooling, self.account_dropout = pooling, account_dropout

    def asked(self, items: Float[Tensor, "M D"], batch: TrainingBatch, questions: Questions) -> Float[Tensor, "I D"]:
        history = pooled_prefixes(items, batch.log, self.pooling)[questions.row, questions.place]
        named = questions.luck >= self.account_dropout * self.training
        return embedding(batch.account[questions.row], self.accounts) * named[:, None] + history  # p = p_a + pool(S)

    def whole(self, items: Float[Tensor, "M D"], batch: Batch) -> Float[Tensor, "B D"]:
        account = self.accounts[batch.account.clamp(min=0)] * (batch.account >= 0)[:, None]
        return account + pooled_history(items, batch, self.pooling)  # p = p_a + pool(S)


class NewestItems(nn.Module):
    """The newest items side by side, mapped to one vector; zeros stand where the log is too short."""

    back: Int[Tensor, "k"]

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.register_buffer("back", torch.arange(count), persistent=False)
        self.join = nn.Linear(count * width, width)

    def asked(self, items: Float[Tensor, "M D"], batch: TrainingBatch, questions: Questions) -> Float[Tensor, "I D"]:
        return self._joined(items, batch.log, questions.row, questions.place)

    def whole(self, items: Float[Tensor, "M D"], batch: Batch) -> Float[Tensor, "B D"]:
        row = torch.arange(len(batch.length), device=batch.length.device)
        return self._joined(items, batch.history, row, batch.length - 1)

    def _joined(
        self, items: Float[Tensor, "M D"], log: Int[Tensor, "B T"], row: Int[Tensor, "I"], place: Int[Tensor, "I"]
    ) -> Float[Tensor, "I D"]:
        at = place[:, None] - self.back
        newest = embedding(log[row[:, None], at.clamp(min=0)], items) * (at >= 0)[..., None]
        return self.join(newest.flatten(start_dim=1))
