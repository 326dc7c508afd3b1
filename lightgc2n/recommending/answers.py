"""What a recommender answers with: lists of items, and what their reader should know."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload


class Recommendation(NamedTuple):
    """One place of a list; the score orders the list and means nothing beyond it."""

    item_id: str
    score: float
    rank: int


@dataclass(frozen=True)
class Recommendations(Sequence[Recommendation]):
    """A list of items, best first, and what its reader should know."""

    account_id: str | None
    items: tuple[Recommendation, ...]
    fallback: bool = False  # nothing is known of the account, so these are the most popular items
    notes: tuple[str, ...] = ()

    @overload
    def __getitem__(self, place: int) -> Recommendation: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Recommendation, ...]: ...
    def __getitem__(self, place: int | slice) -> Recommendation | tuple[Recommendation, ...]:
        return self.items[place]

    def __len__(self) -> int:
        return len(self.items)
