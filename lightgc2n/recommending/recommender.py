"""A trained run that answers: what comes next for an account, or for a history alone."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lightgc2n.data.batches import Batch, make_batch, query_batches
from lightgc2n.data.dataset import MANIFEST, Dataset, Domain, Longs, load_dataset, verify_dataset
from lightgc2n.data.splits import Queries, Split, Training, split_dataset
from lightgc2n.errors import DataError
from lightgc2n.metrics.ranks import refuse_not_finite, rows_per_tile
from lightgc2n.models.contract import Model
from lightgc2n.people.finder import People, PeopleFinder
from lightgc2n.recommending.answering import Floats, Wish
from lightgc2n.recommending.answers import Recommendation as Recommendation
from lightgc2n.recommending.answers import Recommendations as Recommendations
from lightgc2n.recommending.best import best_of_two_kinds
from lightgc2n.recommending.finders import FinderPlace, finder_for, finder_place
from lightgc2n.recommending.people import History
from lightgc2n.recommending.persons import AnsweringForPeople, Scores
from lightgc2n.training.runs import load_run, plan_of, read_run


def load(path: str | Path, data: str | Path | None = None, device: str = "cpu") -> "Recommender":
    """The recommender over the run at `path`.

    Args:
        data: the run's dataset, if it has moved.
    """
    return load_with_split(path, data, device)[0]


def load_with_split(
    path: str | Path, data: str | Path | None = None, device: str = "cpu"
) -> "tuple[Recommender, Split]":
    """The same, and the run's split, for callers that also test the model."""
    run = Path(path)
    plan, checksum = plan_of(run), read_run(run)["data"]["checksum"]
    folder = Path(data) if data is not None else plan.data
    if data is None and not (folder / MANIFEST).is_file():
        raise DataError(f"{run}: its dataset is no longer at {folder}. Say where it is with --data DIR.")
    dataset = load_dataset(folder)
    verify_dataset(folder)
    if dataset.checksum != checksum:
        raise DataError(
            f"{folder}: checksum {dataset.checksum[:12]}…, but {run} was trained on {checksum[:12]}…. "
            f"Give --data the dataset of the run."
        )
    if plan.domain:
        dataset = dataset.only(plan.domain)
    name, model, _ = load_run(run)
    split, place = split_dataset(dataset, plan.split), finder_place(run, checksum, plan.domain, plan.split)
    known = counted_up_to_now(model.to(device), split)
    return Recommender(name, model, dataset, split.train, device, place, known), split


def counted_up_to_now(model: Model, split: Split) -> Training:
    """Recount what the model counts on all events that the split knows, and return these events.

    A plus model whose blend was never fitted keeps the counts of training: such runs answer as earlier versions did.
    """
    newer = split.known
    return newer if newer is not None and model.is_finished and model.refresh(newer) else split.train


class Recommender(AnsweringForPeople):
    """Lists of next items from one model, which is encoded once.

    Args:
        known: the events that the model's counts are of, where these are newer than training.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        dataset: Dataset,
        train: Training,
        device: str = "cpu",
        finder_place: FinderPlace | None = None,
        known: Training | None = None,
    ) -> None:
        learned = np.zeros(len(dataset.accounts), dtype=bool)
        learned[train.sequence_accounts[np.diff(train.offsets) > 0]] = True
        super().__init__(name, dataset, learned)
        self.model, self.device = model.eval(), device
        self._train, self._finder_place = train, finder_place
        with torch.no_grad():
            self._encoded = model.encode()
        self._popularity = torch.as_tensor((known or train).popularity, device=device)
        self._learned_items = (self._popularity > 0) | model.scores_unseen_items
        self._learned = self._learned_items.cpu().numpy()

    @cached_property
    def _finder(self) -> PeopleFinder:
        """Learned from the run's training logs the first time, and kept in the run's folder."""
        if self.dataset.kind != "logs":
            raise DataError(f"{self.dataset.name} holds {self.dataset.kind}, and people are found in whole logs alone.")
        return finder_for(self._train, self._finder_place)

    @property
    def _counts(self) -> Longs:
        return self._popularity.cpu().numpy()

    def _by_person(self, history: History, found: People) -> Queries:
        """As for any recommender, asked when the dataset ends."""
        queries = super()._by_person(history, found)
        if history.times is None or self.dataset.times is None:
            return queries
        order = np.argsort(found.share.argmax(axis=1), kind="stable")
        times = np.append(history.times[order], self.dataset.times.max())
        return replace(queries, times=times, target_event=np.full(found.count, len(order)))

    def _scores_of_people(self, queries: Queries, wish: Wish) -> Scores:
        return self._scores(make_batch(queries, self.device), wish, fold_in=True).cpu().numpy()

    def _stored(self, accounts: list[str]) -> tuple[list[str | None], Queries, list[tuple[str, ...]]]:
        names, queries, notes = super()._stored(accounts)
        return names, self._asked_last(queries), notes

    def _asked_last(self, queries: Queries) -> Queries:
        """The same questions, asked when the dataset ends: everything in it has happened, and nothing after it."""
        times = self.dataset.times
        if times is None or not len(times):
            return queries
        return replace(queries, times=times, target_event=np.full_like(queries.target_event, times.argmax()))

    def _best(self, queries: Queries, wish: Wish, fold_in: bool) -> Iterator[tuple[Floats, Longs]]:
        for asked in query_batches(queries, rows_per_tile(len(self.dataset.items), self.device), self.device):
            values, items = best_of_two_kinds(self._scores(asked.batch, wish, fold_in), self._learned_items, wish.k)
            yield values.cpu().numpy(), items.cpu().numpy()

    @torch.no_grad()
    def _latent_users(self, queries: Queries) -> tuple[Floats, Floats]:
        batch = make_batch(queries, self.device)
        users = self.model.latent_users(self._encoded, batch)
        return users.ownership[0, :, : int(batch.length[0])].cpu().numpy(), users.weight[0].cpu().numpy()

    @torch.no_grad()
    def _scores(self, batch: Batch, wish: Wish, fold_in: bool) -> Float[Tensor, "B M"]:
        """The model's scores, popularity where there is no history, and minus infinity for what may not be listed."""
        # A model that holds nothing for an account but its embedding needs no other way for a given history.
        score: Any = self.model.fold_in_scores if fold_in else self.model.scores
        batch = replace(batch, moment=None)  # asked after all that was ever counted
        scores = score(self._encoded, batch, Domain("all", 0, len(self.dataset.items)))
        refuse_not_finite(self.name, scores)
        scores = torch.where(batch.length[:, None] > 0, scores, self._popularity.to(scores.dtype))
        scores[:, torch.as_tensor(~wish.listed, device=scores.device)] = -torch.inf
        if wish.exclude_seen:
            row, place = torch.nonzero(batch.known, as_tuple=True)
            scores[row, batch.history[row, place]] = -torch.inf
        return scores
