"""Scores from a model in torch, and the best items of a row of scores in an order that does not depend on the machine.

Shapes: B batch, M items, K list length.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightgc2n.data.batches import Batch, make_batch, query_batches
from lightgc2n.data.dataset import Domain, Longs
from lightgc2n.data.splits import Queries, Training
from lightgc2n.errors import SettingError, option
from lightgc2n.metrics.ranks import refuse_not_finite, rows_per_tile
from lightgc2n.models.contract import Model
from lightgc2n.recommending.scorer import Flags, Floats, ListOptions, QueryBatch, Scores, TopItems

Best = tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]

EXPORT = option("lightgc2n export RUN --out BUNDLE", "lightgc2n.load(RUN).export(BUNDLE)")


class TorchScorer:
    """A trained model, encoded once."""

    def __init__(self, name: str, model: Model, train: Training, device: str = "cpu") -> None:
        self.name, self.model, self.train, self.device = name, model.eval(), train, device
        with torch.no_grad():
            self._encoded = model.encode()
        self._popularity = torch.as_tensor(train.popularity, device=device)
        self._learned = (self._popularity > 0) | model.scores_unseen_items
        self.learned_items: Flags = self._learned.cpu().numpy()

    @property
    def popularity(self) -> Longs:
        return self.train.popularity

    def item_vectors(self) -> Floats:
        raise SettingError(f"similar items need a bundle. Make one with: {EXPORT}.")

    def top_items(self, batches: Sequence[QueryBatch]) -> Iterator[TopItems]:
        rows = rows_per_tile(self.train.items, self.device)
        for batch in batches:
            for part in query_batches(batch.queries, rows, self.device):
                scores = self._scores(part.batch, batch.options, batch.fold_in)
                values, items = best_of_two_kinds(scores, self._learned, batch.options.k)
                yield values.cpu().numpy(), items.cpu().numpy()

    def scores(self, batch: QueryBatch) -> Scores:
        return self._scores(make_batch(batch.queries, self.device), batch.options, batch.fold_in).cpu().numpy()

    @torch.no_grad()
    def latent_users(self, queries: Queries) -> tuple[Floats, Floats]:
        batch = make_batch(queries, self.device)
        users = self.model.latent_users(self._encoded, batch)
        return users.ownership[0, :, : int(batch.length[0])].cpu().numpy(), users.weight[0].cpu().numpy()

    @torch.no_grad()
    def _scores(self, batch: Batch, options: ListOptions, fold_in: bool) -> Float[Tensor, "B M"]:
        """The model's scores, popularity where there is no history, and minus infinity for what may not be listed."""
        # A model that has nothing but an embedding for an account scores given and stored histories alike.
        score: Any = self.model.fold_in_scores if fold_in else self.model.scores
        batch = replace(batch, moment=None)  # the query comes after every counted event
        scores = score(self._encoded, batch, Domain("all", 0, self.train.items))
        refuse_not_finite(self.name, scores)
        scores = torch.where(batch.length[:, None] > 0, scores, self._popularity.to(scores.dtype))
        scores[:, torch.as_tensor(~options.listed, device=scores.device)] = -torch.inf
        if options.exclude_seen:
            row, place = torch.nonzero(batch.known, as_tuple=True)
            scores[row, batch.history[row, place]] = -torch.inf
        return scores


def best_items(scores: Float[Tensor, "B M"], k: int) -> Best:
    """The k best scores of each row and their items, best first; of equal scores the lower item index.

    An item with a score of minus infinity may not be listed: such entries come last, and their items mean nothing.
    """
    k = min(k, scores.shape[1])
    values, items = scores.topk(min(k + 1, scores.shape[1]))
    if values.shape[1] > k:  # where the first item outside ties with the last one inside, topk takes either
        tied = (values[:, k] == values[:, k - 1]) & values[:, k].isfinite()
        if bool(tied.any()):
            exact = scores[tied].sort(dim=1, descending=True, stable=True)
            values[tied], items[tied] = exact.values[:, : k + 1], exact.indices[:, : k + 1]
    items, order = items[:, :k].sort(dim=1)
    values, order = values[:, :k].gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, items.gather(1, order)


def best_of_two_kinds(scores: Float[Tensor, "B M"], first: Bool[Tensor, "M"], k: int) -> Best:
    """As `best_items`, but every item of the first kind comes before all others."""
    values, items = best_items(scores.masked_fill(~first, -torch.inf), k)
    short = ~values[:, -1].isfinite()
    if not bool(short.any()):
        return values, items
    others, their_items = best_items(scores[short].masked_fill(first, -torch.inf), k)
    joined, places = torch.cat([values[short], others], dim=1), torch.cat([items[short], their_items], dim=1)
    # A stable sort by "may be listed" closes the gap between the two kinds and keeps the order of each.
    order = (~joined.isfinite()).int().sort(dim=1, stable=True).indices[:, : values.shape[1]]
    values[short], items[short] = joined.gather(1, order), places.gather(1, order)
    return values, items
