"""Whose each event of a history is, told by item ids and plain numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from lightgc2n.errors import ScoreError

Floats = npt.NDArray[np.float32]


class Interaction(NamedTuple):
    """One event of a history, and how far it is each latent user's; the shares sum to one."""

    item_id: str
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Ownership(Sequence[Interaction]):
    """The events of a history, oldest first, and the latent users that they tell of.

    Latent users are the model's own: the same number for every account, and not yet people. One of them may stand for
    several people, and several for one.
    """

    account_id: str | None
    interactions: tuple[Interaction, ...]
    weights: tuple[float, ...]  # how much of the account each latent user is; they sum to one
    notes: tuple[str, ...] = ()

    @overload
    def __getitem__(self, place: int) -> Interaction: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Interaction, ...]: ...
    def __getitem__(self, place: int | slice) -> Interaction | tuple[Interaction, ...]:
        return self.interactions[place]

    def __len__(self) -> int:
        return len(self.interactions)


def tell(
    account_id: str | None, item_ids: Sequence[str], shares: Floats, weights: Floats, notes: Sequence[str]
) -> Ownership:
    """The latent users of a history in words.

    Args:
        item_ids: the events of the history.
        shares: how far each event is each latent user's, [A, T].
        weights: how much of the account each latent user is, [A].
    """
    told = zip(item_ids, shares.T.tolist(), strict=True)
    interactions = tuple(Interaction(item, tuple(own)) for item, own in told)
    remarks = () if item_ids else ("no history: there is nothing to own",)
    return Ownership(account_id, interactions, tuple(weights.tolist()), (*notes, *remarks))


def refuse_diverged(name: str, shares: Floats, weights: Floats) -> None:
    """Stops at a share or a weight that is no number."""
    for what, found in (("share", shares), ("weight", weights)):
        if not np.isfinite(found).all():
            raise ScoreError(f"{name}: a latent user's {what} is not finite. Train with a lower learning rate.")
