"""What everybody has lately: at a moment, the items that were most frequent just before it, as a bonus on their scores.

Shapes: Q questions, M items, S looks back, H half-lives, K items kept, C choices.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightgc2n.data.batches import days_of
from lightgc2n.data.splits import Training

HALF_LIVES = (1.0, 4.0, 16.0, 64.0)  # days
LOUDNESS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
LOOKS = 256


class Trends(nn.Module):
    """The bonus log(1 + sum_h a_h · rate_h / exp(bias)): exp(bias) is how often an item comes at all, rate_h lately.

    A question takes the newest look that was before it, so that in training nothing of its own moment or later speaks.
    Training questions stand near their look and the test does not: which half-life speaks there, and how loudly, is
    `chosen` on validation events.
    """

    looked: Float[Tensor, "S"]  # days since 1970: events before it count
    columns: Int[Tensor, "S K"]  # item 0 with a rate of 0 fills up
    rates: Float[Tensor, "S K H"]  # events a day; one counts 1/2 after each half-life
    chosen: Float[Tensor, "H"]

    def __init__(
        self, looked: Float[Tensor, "S"], columns: Int[Tensor, "S K"], rates: Float[Tensor, "S K H"], mass: float
    ) -> None:
        """With `mass`, the sum of exp(bias), trends start out as heavy as all that is said at any time."""
        super().__init__()
        half_lives = rates.shape[-1]
        for name, table in (("looked", looked), ("columns", columns), ("rates", rates)):
            self.register_buffer(name, table)
        self.register_buffer("chosen", torch.ones(half_lives))
        lately = float(rates.sum(dim=(1, 2)).mean())
        self.weight = nn.Parameter(torch.full((half_lives,), math.log(mass / max(lately, 1e-9))))  # log a

    @property
    def choices(self) -> Float[Tensor, "C H"]:
        """All half-lives as they were learned, none, or one of them as loud as it may be."""
        loud = torch.tensor(LOUDNESS, device=self.chosen.device)
        single = loud[:, None, None] * torch.eye(len(self.chosen), device=loud.device)
        return torch.cat(
            [torch.ones_like(self.chosen)[None], torch.zeros_like(self.chosen)[None], single.flatten(0, 1)]
        )

    def forward(
        self, moment: Float[Tensor, "Q"] | None, bias: Float[Tensor, "M"], questions: int
    ) -> tuple[Int[Tensor, "Q K"], Float[Tensor, "Q K"]]:
        """The items that were frequent before each moment, none being after everything, and the bonus of each."""
        if moment is None:
            moment = self.looked[-1:].expand(questions)
        look = torch.searchsorted(self.looked, moment.contiguous(), right=True) - 1
        known, look = look >= 0, look.clamp(min=0)
        bonus = self.bonus(bias)[look] * known[:, None]
        return self.columns[look].long(), bonus

    def bonus(self, bias: Float[Tensor, "M"]) -> Float[Tensor, "S K"]:
        """Of all items of all looks: looks are fewer than questions."""
        loud = self.weight.exp() if self.training else self.chosen * self.weight.exp()
        return torch.log1p(self.rates @ loud * torch.exp(-bias[self.columns.long()]))


def count_trends(train: Training, kept: int) -> dict[str, Tensor] | None:
    """The tables of `Trends`, with looks after equally many events each; none where no times are known."""
    if train.times is None or not len(train.times):
        return None
    order = np.argsort(train.times, kind="stable")
    days, items = days_of(train.times[order]), train.events[order]
    after_all = np.nextafter(days[-1], np.float32(np.inf))
    looked = np.unique(np.append(days[:: -(-len(days) // LOOKS)][1:], after_all))
    columns, lately = [], []
    frequent = (decayed_counts(days, items, train.items, looked, half_life) for half_life in HALF_LIVES)
    for parts in zip(*frequent, strict=True):
        rates = np.stack([part * np.log(2) / half_life for part, half_life in zip(parts, HALF_LIVES, strict=True)])
        best = np.argsort(-rates.sum(axis=0), kind="stable")[:kept]
        columns.append(np.where(rates[:, best].any(axis=0), best, 0).astype(np.int32))
        lately.append(rates[:, best].T.astype(np.float32))
    tables = {"looked": looked, "columns": np.stack(columns), "rates": np.stack(lately)}
    return {name: torch.from_numpy(table) for name, table in tables.items()}


def decayed_counts(
    days: npt.NDArray[np.float32],
    items: npt.NDArray[np.int32],
    catalogue: int,
    looked: npt.NDArray[np.float32],
    half_life: float,
) -> Iterator[npt.NDArray[np.float64]]:
    """Before each look, how often each item came, an event counting 1/2 after each half-life.

    Args:
        days: of the events, in order.
        looked: in order.
    """
    counts, before, first = np.zeros(catalogue), float(looked[0]), 0
    for now in looked.astype(np.float64):
        last = int(np.searchsorted(days, np.float32(now)))  # events of the very moment do not count
        fresh = 0.5 ** ((now - days[first:last]) / half_life)
        counts = counts * 0.5 ** ((now - before) / half_life)
        counts += np.bincount(items[first:last], weights=fresh, minlength=catalogue)
        before, first = now, last
        yield counts


class NoTrends(nn.Module):
    """In place of `Trends`: what everybody has lately plays no part."""

    nothing: Float[Tensor, "1"]

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("nothing", torch.zeros(1), persistent=False)

    def forward(
        self, moment: Float[Tensor, "Q"] | None, bias: Float[Tensor, "M"], questions: int
    ) -> tuple[Int[Tensor, "Q 1"], Float[Tensor, "Q 1"]]:
        nothing = self.nothing.expand(questions, 1)
        return nothing.long(), nothing
