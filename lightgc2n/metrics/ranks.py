"""The rank of each query's target among the whole catalogue, computed in tiles of bounded memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightgc2n.data.batches import Batch, LabelledBatch, query_batches
from lightgc2n.data.dataset import Domain, Longs
from lightgc2n.data.splits import Queries
from lightgc2n.devices import device_of
from lightgc2n.errors import ScoreError

BYTES_PER_SCORE = 8


@runtime_checkable
class Scorer(Protocol):
    """The part of a model that evaluation uses."""

    def encode(self) -> Any: ...

    def scores(self, encoded: Any, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]: ...


def rank_by_counting(scores: Float[Tensor, "B M"], target: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """The rank of each row's target, 1 for the best; k equal scores share the mean of their k ranks."""
    own = scores.gather(1, target[:, None])
    # Summed as int32: the default, int64, is fifteen times slower on a CPU.
    better = (scores > own).sum(dim=1, dtype=torch.int32)
    equal = (scores == own).sum(dim=1, dtype=torch.int32) - 1
    return 1 + better + equal.double() / 2


def rows_per_tile(items: int, device: str = "cpu") -> int:
    """How many queries are scored at once, so that a tile of scores stays small."""
    limits = device_of(device)
    return max(1, min(limits.tile_rows, limits.tile_bytes // (BYTES_PER_SCORE * max(items, 1))))


def rows_in(queries: Queries, domain: Domain) -> Longs:
    """The rows of the queries whose target belongs to the domain."""
    return np.flatnonzero((queries.target >= domain.start) & (queries.target < domain.stop))


def batches_in_domains(queries: Queries, domains: Sequence[Domain], device: str) -> Iterator[LabelledBatch]:
    """Batches of all queries, domain by domain; a target is ranked among the items of its own domain."""
    rows = rows_per_tile(domains[-1].stop, device)  # a model may score all items first
    for domain in domains:
        yield from query_batches(queries.select(rows_in(queries, domain)), rows, device, domain)


def ranks_in_domains(
    name: str, model: Scorer, queries: Queries, domains: Sequence[Domain], **options: Any
) -> npt.NDArray[np.float64]:
    """`target_ranks` of all queries, each target among the items of its own domain."""
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
    """The rank of each target among the domain's items; infinite for a miss.

    Args:
        name: the model's name, for error messages.
        learned: for each item whether the model has learned it. A target that it has not learned counts as a miss,
            unless it is in the history: its rank would be luck.
        exclude_seen: leave the items of the history out of the list; a target among them then counts as a miss.

    Raises:
        ScoreError: a score is NaN or infinite.
    """
    encoded, is_learned = model.encode(), torch.as_tensor(learned, device=device)
    ranks = []
    for labelled in query_batches(queries, rows_per_tile(len(domain), device), device):
        scores = model.scores(encoded, labelled.batch, domain)
        refuse_not_finite(name, scores)
        if exclude_seen:
            scores = without_seen(scores, labelled.batch, domain)
        rank = rank_by_counting(scores, labelled.target - domain.start)
        repeat = targets_in_history(labelled)
        unlearned = ~is_learned[labelled.target]
        missed = repeat | unlearned if exclude_seen else ~repeat & unlearned
        ranks.append(torch.where(missed, torch.inf, rank).cpu().numpy())
        progress(len(labelled.target))
    return np.concatenate(ranks) if ranks else np.empty(0)


def targets_in_history(labelled: LabelledBatch) -> Bool[Tensor, "B"]:
    """Whether each target is in its own history: as an earlier event, or because the protocol leaks."""
    return ((labelled.batch.history == labelled.target[:, None]) & labelled.batch.known).any(dim=1)


def refuse_not_finite(name: str, scores: Float[Tensor, "B M"]) -> None:
    """Raise ScoreError if a score is NaN or infinite: comparing with it would give a wrong rank."""
    # The extremes of a tile are NaN if any score is, and take a thirtieth of the time of testing each score.
    low, high = torch.aminmax(scores)
    if not bool(torch.isfinite(low) & torch.isfinite(high)):
        row, item = torch.nonzero(~torch.isfinite(scores))[0].tolist()
        raise ScoreError(
            f"{name}: score {float(scores[row, item])} (row {row}, item {item}) is not finite, so it has no rank. "
            f"Train the model with a smaller learning rate."
        )


def without_seen(scores: Float[Tensor, "B M"], batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
    """The scores, minus infinity for items of the history."""
    row, place = torch.nonzero(batch.known, as_tuple=True)
    item = batch.history[row, place] - domain.start
    inside = (item >= 0) & (item < len(domain))
    scores[row[inside], item[inside]] = -torch.inf
    return scores
