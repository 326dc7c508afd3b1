"""The rank of every query's target among the whole catalogue, in tiles of bounded memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lightgc2n.data.batches import Asked, Batch, query_batches
from lightgc2n.data.dataset import Domain, Longs
from lightgc2n.data.splits import Queries
from lightgc2n.errors import ScoreError
from lightgc2n.layers.ranking import rank_by_counting

TILE_BYTES = {"cpu": 16 * 2**20, "cuda": 256 * 2**20}  # a CPU's stays in fast memory, a GPU's keeps all of it busy
MOST_ROWS = {"cpu": 4096, "cuda": 1024}  # what a model holds for each history grows with them
BYTES_PER_SCORE = 8


@runtime_checkable
class Scorer(Protocol):
    """What evaluation needs of a model."""

    def encode(self) -> Any: ...

    def scores(self, encoded: Any, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]: ...


def rows_per_tile(items: int, device: str = "cpu") -> int:
    """How many queries are scored at once, so that a tile of scores stays small."""
    return max(1, min(MOST_ROWS[device], TILE_BYTES[device] // (BYTES_PER_SCORE * max(items, 1))))


def rows_in(queries: Queries, domain: Domain) -> Longs:
    """The queries whose target is of the domain."""
    return np.flatnonzero((queries.target >= domain.start) & (queries.target < domain.stop))


def asked_in_domains(queries: Queries, domains: Sequence[Domain], device: str) -> Iterator[Asked]:
    """All queries, domain by domain, each to be ranked among the items of the domain that its target belongs to."""
    rows = rows_per_tile(domains[-1].stop, device)  # a model may score all items first
    for domain in domains:
        yield from query_batches(queries.select(rows_in(queries, domain)), rows, device, domain)


def ranks_in_domains(
    name: str, model: Scorer, queries: Queries, domains: Sequence[Domain], **options: Any
) -> npt.NDArray[np.float64]:
    """`target_ranks` of each target among the items of the domain that it belongs to."""
    ranks = np.full(len(queries), np.nan)
    for domain in domains:
        rows = rows_in(queries, domain)
        ranks[rows] = target_ranks(name, model, queries.select(rows), domain, **options)
    assert not np.isnan(ranks).any(), "every target belongs to one of the domains"
    return ranks


@torch.no_grad()
def target_ranks(
    name: str,
    model: Scorer,
    queries: Queries,
    domain: Domain,
    *,
    learned: npt.NDArray[np.bool_],
    exclude_seen: bool = False,
    device: str = "cpu",
    progress: Callable[[int], None] = lambda rows: None,
) -> npt.NDArray[np.float64]:
    """The rank of each target among the domain's items, infinite for a miss; a score that is not finite is an error.

    Args:
        learned: for each item whether the model can tell anything of it. Another target counts as a miss, unless it
            stands in the history: nothing but luck would put it in the list.
        exclude_seen: leave the items of the history out of the list; a target among them then counts as a miss.
    """
    encoded, tells = model.encode(), torch.as_tensor(learned, device=device)
    ranks = []
    for asked in query_batches(queries, rows_per_tile(len(domain), device), device):
        scores = model.scores(encoded, asked.batch, domain)
        refuse_not_finite(name, scores)
        if exclude_seen:
            scores = _without_seen(scores, asked.batch, domain)
        rank = rank_by_counting(scores, asked.target - domain.start)
        repeat = targets_in_history(asked)
        missed = repeat | ~tells[asked.target] if exclude_seen else ~repeat & ~tells[asked.target]
        ranks.append(torch.where(missed, torch.inf, rank).cpu().numpy())
        progress(len(asked.target))
    return np.concatenate(ranks) if ranks else np.empty(0)


def targets_in_history(asked: Asked) -> Bool[Tensor, "B"]:
    """Whether each target stands in its own input already: from an earlier event, or because the protocol leaks."""
    return ((asked.batch.history == asked.target[:, None]) & asked.batch.known).any(dim=1)


def refuse_not_finite(name: str, scores: Float[Tensor, "B M"]) -> None:
    """Stops at a score that is NaN or infinite: compared with anything, it would count as a wrong rank."""
    # The extremes of a tile are NaN if any score is, and cost a thirtieth of asking each score.
    low, high = torch.aminmax(scores)
    if not bool(torch.isfinite(low) & torch.isfinite(high)):
        row, item = torch.nonzero(~torch.isfinite(scores))[0].tolist()
        raise ScoreError(
            f"{name}: score {float(scores[row, item])} (row {row}, item {item}). No rank is counted. "
            f"Train it with a smaller learning rate."
        )


def _without_seen(scores: Float[Tensor, "B M"], batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
    row, place = torch.nonzero(batch.known, as_tuple=True)
    item = batch.history[row, place] - domain.start
    inside = (item >= 0) & (item < len(domain))
    scores[row[inside], item[inside]] = -torch.inf
    return scores
