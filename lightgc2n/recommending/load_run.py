"""A recommender over a run folder: the model in torch, and a people finder that is learned on first use.

The people finder is learned from the run's training logs and saved in the run folder.
`TorchScorer` lists the best items in an order that does not depend on the machine.

Shapes: B batch, M items, K list length.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightgc2n.data.batches import Batch, make_batch, query_batches
from lightgc2n.data.dataset import MANIFEST, Dataset, Domain, Longs, load_dataset, verify_dataset
from lightgc2n.data.splits import Queries, Split, SplitConfig, Training, all_events, split_dataset
from lightgc2n.errors import DATA, DataError, OutputError, SettingError, option
from lightgc2n.files.writer_lock import recover
from lightgc2n.metrics.ranks import refuse_not_finite, rows_per_tile
from lightgc2n.models.contract import Model
from lightgc2n.people.finder import PeopleFinder, load_finder, save_finder
from lightgc2n.people.sessions import Logs
from lightgc2n.progress import say
from lightgc2n.recommending.queries import Flags, Floats, Histories, ListOptions, QueryBatch, Scores, Source, TopItems
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.training.runs import is_refreshed, plan_of, read_run
from lightgc2n.training.runs import load_run as load_model

FINDER_FOLDER = "people"
SEED = 0

DATA_FOLDER = option("--data DIR", "data=")
Best = tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]
EXPORT = option("lightgc2n export RUN --out BUNDLE", "lightgc2n.load(RUN).export(BUNDLE)")


@dataclass(frozen=True)
class FinderPlace:
    """The folder of a run's people finder, and the data that it must have been learned from."""

    folder: Path
    of: dict[str, Any]


def load_run(path: str | Path, data: str | Path | None = None, device: str = "cpu") -> Recommender:
    """The recommender over the run at `path`.

    Args:
        data: the run's dataset, if it has moved.
    """
    return load_with_split(path, data, device)[0]


def load_with_split(
    path: str | Path, data: str | Path | None = None, device: str = "cpu"
) -> tuple[Recommender, Split | None]:
    """The recommender and the run's split, for callers that also evaluate the model; None for a refreshed run."""
    run = Path(path)
    plan, checksum = plan_of(run), read_run(run)["data"]["checksum"]
    folder = Path(data) if data is not None else plan.data
    if data is None and not (folder / MANIFEST).is_file():
        raise DataError(f"{run}: its dataset is no longer at {folder}. Say where it is with {DATA_FOLDER}.")
    dataset = load_dataset(folder)
    verify_dataset(folder)
    if dataset.checksum != checksum:
        raise DataError(
            f"{folder}: checksum {dataset.checksum[:12]}…, but {run} was trained on {checksum[:12]}…. "
            f"Give {DATA} the dataset of the run."
        )
    if plan.domain:
        dataset = dataset.only(plan.domain)
    name, model, _ = load_model(run)
    place = finder_place(run, checksum, plan.domain, plan.split)
    if is_refreshed(run):
        every = all_events(dataset, plan.split)
        model.to(device).refresh(every)
        return run_recommender(name, model, dataset, every, device, place), None
    split = split_dataset(dataset, plan.split)
    known = counted_up_to_now(model.to(device), split)
    return run_recommender(name, model, dataset, split.train, device, place, known), split


def counted_up_to_now(model: Model, split: Split) -> Training:
    """Recount what the model counts on all events that the split knows, and return these events.

    A plus model whose blend was never fitted keeps the counts of training: such runs answer as earlier versions did.
    """
    newer = split.known
    return newer if newer is not None and model.is_finished and model.refresh(newer) else split.train


def run_recommender(
    name: str,
    model: Model,
    dataset: Dataset,
    train: Training,
    device: str = "cpu",
    place: FinderPlace | None = None,
    known: Training | None = None,
) -> Recommender:
    """The recommender over a model in memory.

    Args:
        place: where the people finder is saved; None: it is learned anew.
        known: the events that the model's counts are of, where these are newer than training.
    """
    learned = np.zeros(len(dataset.accounts), dtype=bool)
    learned[train.sequence_accounts[np.diff(train.offsets) > 0]] = True
    finder = _finder_of(dataset, train, place)
    source = Source(Histories(dataset, learned), finder, dataset.kind == "logs", lambda: dataset.catalogue)
    return Recommender(name, TorchScorer(name, model, known or train, device), source)


def _finder_of(dataset: Dataset, train: Training, place: FinderPlace | None) -> Callable[[], PeopleFinder]:
    def finder() -> PeopleFinder:
        if dataset.kind != "logs":
            raise DataError(f"{dataset.name} holds {dataset.kind}, and people are found in whole logs alone.")
        return finder_for(train, place)

    return finder


def finder_place(run: Path, checksum: str, domain: str, split: SplitConfig) -> FinderPlace:
    """The finder's folder in a run, and the data, domain and split that the run was trained on."""
    return FinderPlace(run / FINDER_FOLDER, {"checksum": checksum, "domain": domain, "split": asdict(split)})


def finder_for(train: Training, place: FinderPlace | None) -> PeopleFinder:
    """Load the people finder at `place`, or learn it now and save it there if a place is given."""
    if place is not None:
        recover(place.folder)
    if place is not None and place.folder.exists():
        return load_finder(place.folder, place.of)
    say("learning to find people, once for this run, from its training logs")
    finder = PeopleFinder.learn(Logs.of_training(train), np.random.default_rng(SEED))
    if place is not None:
        _save(finder, place)
    return finder


def _is_current(place: FinderPlace) -> bool:
    """Whether the run still has the data that the finder was learned from; `forget` may have changed it."""
    return bool(read_run(place.folder.parent)["data"]["checksum"] == place.of["checksum"])


def _save(finder: PeopleFinder, place: FinderPlace) -> None:
    if not _is_current(place):
        say(f"{place.folder.parent} was changed meanwhile, so the people finder is not kept there")
        return
    try:
        # Another process may have saved the same finder meanwhile; either may stay.
        save_finder(finder, place.folder, force=True, of=place.of)
    except (OSError, OutputError) as problem:
        say(f"the people finder is not kept, so the next call learns it again: {problem}")


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

    def tiles(self, batch: QueryBatch) -> list[int]:
        rows, queries = rows_per_tile(self.train.items, self.device), len(batch.queries)
        return [min(rows, queries - first) for first in range(0, queries, rows)]

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
        if bool((empty := batch.length == 0).any()):
            scores = torch.where(empty[:, None], self._popularity.to(scores.dtype), scores)
        if not options.listed.all():
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
    if bool(first.all()):
        return best_items(scores, k)
    # A sum takes a tenth of the time of masked_fill with a mask of one row.
    values, items = best_items(scores + torch.where(first, 0.0, -torch.inf).to(scores.dtype), k)
    short = ~values[:, -1].isfinite()
    if not bool(short.any()):
        return values, items
    others, their_items = best_items(scores[short].masked_fill(first, -torch.inf), k)
    joined, places = torch.cat([values[short], others], dim=1), torch.cat([items[short], their_items], dim=1)
    # A stable sort by "may be listed" closes the gap between the two kinds and keeps the order of each.
    order = (~joined.isfinite()).int().sort(dim=1, stable=True).indices[:, : values.shape[1]]
    values[short], items[short] = joined.gather(1, order), places.gather(1, order)
    return values, items
