"""Lists for the person who is likely acting, compared with the account's own list, on data with labels.

Every event after the test cut is a query with the account's history up to it. A strategy chooses weighted histories for
the query, and the same trained model scores all of them. The list mixes these scores with the account's own, with one
weight within a session and one at its start. Both weights are selected on the events between the two cuts. Labels are
used to select these two weights, to score, and for the last two strategies.

account          the account's own list
likely person    the events of each estimated person, weighted by the probability that they act
likely of five   the same, with five people in every account
likely sessions  the account up to the end of each of its newest sessions, weighted by age and by
                the probability that its person (of five) acts
newest sessions  without people: the account up to the end of each of its newest sessions, the newest weighted most
people now       the events of each estimated person, weighted by the chance that they watch now
shuffled people  the same after the people were shuffled among the sessions of the account: the control
true people      the events of each true person, weighted by the probability that they act
true person      the events of the person who acts, which no method can know
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from lightgc2n import __version__, zoo
from lightgc2n.data.batches import LabelledBatch, make_batch
from lightgc2n.data.dataset import Dataset, Domain, Longs
from lightgc2n.data.members import Members
from lightgc2n.data.split_types import Queries
from lightgc2n.data.splits import Split, SplitConfig, split_dataset
from lightgc2n.errors import DataError, SettingError
from lightgc2n.experiments.identify import IdentifyOptions, in_part
from lightgc2n.experiments.people_now import people_now
from lightgc2n.experiments.rolling_queries import (
    ChooseHistories,
    RollingQueries,
    likely_person,
    likely_sessions,
    newest_sessions,
    queries_with,
    rolling_queries,
    true_people,
    true_person,
)
from lightgc2n.metrics.intervals import paired_p_values
from lightgc2n.metrics.member_recall import Served, measure_served
from lightgc2n.metrics.ranking import Floats, reciprocal_rank
from lightgc2n.metrics.ranks import (
    batches_in_domains,
    rank_by_counting,
    refuse_not_finite,
    rows_per_tile,
    targets_in_history,
)
from lightgc2n.models.contract import Model
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.progress import step
from lightgc2n.recommending.load_run import finder_for, finder_place
from lightgc2n.training.run import ready_for_test
from lightgc2n.training.runs import RUN, load_run, plan_of, refuse_other_data

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
CUTOFF = 20
OWN, CONTROL = "account", "shuffled people"


@dataclass(frozen=True)
class ListModel:
    """A model that scores the items of a list."""

    name: str
    model: Model
    is_simple: bool
    items: int

    @torch.no_grad()
    def answers(self, encoded: Any, queries: Queries, fold_in: bool) -> Float[Tensor, "B M"]:
        """Probabilities of all items; scores scaled to 0 to 1 for a simple baseline, which has no logits."""
        score: Any = self.model.fold_in_scores if fold_in else self.model.scores
        scores = score(encoded, make_batch(queries), Domain("all", 0, self.items)).float()
        refuse_not_finite(self.name, scores)
        if not self.is_simple:
            return torch.softmax(scores, dim=1)
        low, high = scores.amin(dim=1, keepdim=True), scores.amax(dim=1, keepdim=True)
        return (scores - low) / (high - low).clamp(min=1e-12)


@dataclass(frozen=True)
class Ranked:
    """The ranks of all targets for each strategy and each weight of WEIGHTS [W, Q]."""

    rolling: RollingQueries
    account: Longs
    member: Longs  # who acted at each query
    by_way: dict[str, Floats]


def serve_named(name: str, dataset: Dataset, members: Members, options: IdentifyOptions) -> dict[str, Any]:
    """Run `serve` for a run on this dataset, with the finder in its folder, or for a simple baseline by its name."""
    if options.gap:
        raise SettingError("--gap: with --serve, the finder decides where sessions end. Leave --gap out.")
    about = in_part(len(dataset.accounts), options)
    member = np.asarray(members.of_event).astype(np.int64)
    if name in zoo.ZOO and zoo.entry_of(name).is_simple:
        split = split_dataset(dataset, SplitConfig(protocol="time"))
        model = zoo.build(name, split.train, {})
        model.calibrate(lambda: batches_in_domains(split.validation, split.catalogues, "cpu"))
        return serve(dataset, split, member, finder_for(split.train, None), name, model, about, is_simple=True)
    if not (Path(name) / RUN).is_file():
        simple = ", ".join(one for one, entry in zoo.ZOO.items() if entry.is_simple)
        raise SettingError(f"--serve: {name!r} is neither a run nor a simple baseline. Simple baselines: {simple}.")
    plan = plan_of(Path(name))
    if plan.split.protocol != "time" or plan.domain or not plan.split.validation:
        raise DataError(f"{name}: --serve needs a run on all items, with validation. Train it with --protocol time.")
    refuse_other_data(Path(name), dataset)
    split = split_dataset(dataset, plan.split)
    label, model, _ = load_run(Path(name))
    finder = finder_for(split.train, finder_place(Path(name), dataset.checksum, plan.domain, plan.split))
    return serve(dataset, split, member, finder, label, model, about, is_simple=False)


def serve(
    dataset: Dataset,
    split: Split,
    member: Longs,
    finder: PeopleFinder,
    name: str,
    model: Model,
    about: npt.NDArray[np.bool_],
    *,
    is_simple: bool,
) -> dict[str, Any]:
    """Return the measures of each strategy, ready for JSON.

    Args:
        split: of protocol `time`.
        member: of each event of the dataset; -1 if unknown.
        about: the accounts to score.
    """
    lister = ListModel(name, model.eval(), is_simple, len(dataset.items))
    learned = (split.train.popularity > 0) | model.scores_unseen_items
    chosen_on = _ranked(dataset, split, member, finder, lister, "validation", learned, about)
    learned = ready_for_test(model, split)
    tested = _ranked(dataset, split, member, finder, lister, "test", learned, about)
    rows, ranks, served = {}, {}, {}
    for way, by_weight in tested.by_way.items():
        weights = (0, 0) if way == OWN else choose(chosen_on, way)
        before = _mixed(chosen_on.by_way[way], chosen_on.rolling.in_session, weights)
        ranks[way] = _mixed(by_weight, tested.rolling.in_session, weights)
        rows[way], served[way] = _measured(ranks[way], tested)
        rows[way] |= {"weight going on": WEIGHTS[weights[0]], "weight beginning": WEIGHTS[weights[1]]}
        rows[way]["validation"] = _measured(before, chosen_on)[0]
    for way in rows:
        rows[way]["p"] = _p_values(ranks, served, way, OWN, tested.account)
    rows["people now"]["p against control"] = _p_values(ranks, served, "people now", CONTROL, tested.account)
    return {
        "made_by": f"lightgc2n {__version__}",
        "dataset": {"name": dataset.name, "checksum": dataset.checksum},
        "model": name,
        "questions": len(tested.member),
        "accounts": len(served[OWN].account),
        "going_on": float(tested.rolling.in_session.mean()),
        "rows": rows,
    }


def _ranked(
    dataset: Dataset,
    split: Split,
    member: Longs,
    finder: PeopleFinder,
    lister: ListModel,
    part: str,
    learned: Any,
    about: npt.NDArray[np.bool_],
) -> Ranked:
    rolling = rolling_queries(dataset, split, part, finder.gap).of_accounts(about)
    ways = {
        "likely person": likely_person(dataset, rolling, finder),
        "likely of five": likely_person(dataset, rolling, finder, MOST_PEOPLE),
        "likely sessions": likely_sessions(dataset, rolling, finder, MOST_PEOPLE),
        "newest sessions": newest_sessions(rolling),
        "people now": people_now(dataset, rolling, finder),
        CONTROL: people_now(dataset, rolling, finder, shuffled=True),
        "true people": true_people(dataset, rolling, member),
        "true person": true_person(rolling, member),
    }
    ranks = {way: np.empty((len(WEIGHTS), len(rolling.queries))) for way in ways}
    rows, encoded = rows_per_tile(lister.items), lister.model.encode()
    with step(f"{lister.name}: {part}", total=len(rolling.queries)) as progress:
        for first in range(0, len(rolling.queries), rows):
            numbers = np.arange(first, min(first + rows, len(rolling.queries)))
            for way, tile in _tile(dataset, rolling, ways, lister, encoded, numbers, learned).items():
                ranks[way][:, numbers] = tile
            progress.advance(len(numbers))
    account, acted = rolling.queries.owner.astype(np.int64), member[rolling.queries.target_event]
    return Ranked(rolling, account, acted, {OWN: ranks["true person"][:1], **ranks})


def _tile(
    dataset: Dataset,
    rolling: RollingQueries,
    ways: Mapping[str, ChooseHistories],
    lister: ListModel,
    encoded: Any,
    numbers: Longs,
    learned: Any,
) -> dict[str, Floats]:
    """Return the ranks of some queries for each strategy and weight."""
    queries = rolling.queries.select(numbers)
    own = lister.answers(encoded, queries, fold_in=False)
    labelled = LabelledBatch(make_batch(queries), torch.as_tensor(queries.target.astype(np.int64)))
    missed = ~targets_in_history(labelled).numpy() & ~learned[queries.target]
    alone, tile = rank_by_counting(own, labelled.target).numpy(), {}
    for way, strategy in ways.items():
        answer = _answered(dataset, rolling, strategy, lister, encoded, numbers)
        # Without a history, use the account's own list.
        answer = torch.where(answer.any(dim=1, keepdim=True), answer, own)
        mixed = (torch.lerp(own, answer, weight) for weight in WEIGHTS[1:])
        ranks = [alone, *(rank_by_counting(scores, labelled.target).numpy() for scores in mixed)]
        tile[way] = np.where(missed, np.inf, np.stack(ranks))
    return tile


def _answered(
    dataset: Dataset,
    rolling: RollingQueries,
    strategy: ChooseHistories,
    lister: ListModel,
    encoded: Any,
    numbers: Longs,
) -> Float[Tensor, "B M"]:
    """Return the weighted mean of the scores for each query's histories."""
    histories = [[one for one in strategy(number) if len(one.places)] for number in numbers.tolist()]
    weight = torch.tensor([one.weight for some in histories for one in some], dtype=torch.float32)
    of = torch.repeat_interleave(torch.arange(len(numbers)), torch.tensor([len(some) for some in histories]))
    total = torch.zeros(len(numbers)).index_add_(0, of, weight)
    mean = torch.zeros(len(numbers), lister.items)
    if len(of):
        answers = lister.answers(encoded, queries_with(dataset, rolling, numbers, histories), fold_in=True)
        mean.index_add_(0, of, answers * (weight / total[of])[:, None])
    return mean


def choose(ranked: Ranked, way: str) -> tuple[int, int]:
    """Return the two weights, as indices of WEIGHTS, of best least-served recall without a loss of MRR, or (0, 0)."""
    in_session, best, value = ranked.rolling.in_session, (0, 0), -1.0
    least_mrr = _gain(_mixed(ranked.by_way[way], in_session, (0, 0))).mean()
    for weights in product(range(len(WEIGHTS)), range(len(WEIGHTS))):
        ranks = _mixed(ranked.by_way[way], in_session, weights)
        least = measure_served(ranks <= CUTOFF, ranked.account, ranked.member).least.mean()
        if least > value and _gain(ranks).mean() >= least_mrr:
            best, value = weights, float(least)
    return best


def _mixed(by_weight: Floats, in_session: Any, weights: tuple[int, int]) -> Floats:
    return np.where(in_session, by_weight[weights[0]], by_weight[weights[1]])


def _gain(ranks: Floats) -> Floats:
    return reciprocal_rank(ranks, CUTOFF)


def _measured(ranks: Floats, ranked: Ranked) -> tuple[dict[str, Any], Served]:
    hits = ranks <= CUTOFF
    served = measure_served(hits, ranked.account, ranked.member)
    in_session = ranked.rolling.in_session
    row = {
        f"least served RC@{CUTOFF}": float(served.least.mean()),
        f"smaller members RC@{CUTOFF}": served.smaller,
        f"RC@{CUTOFF}": float(hits.mean()),
        f"MRR@{CUTOFF}": float(_gain(ranks).mean()),
        f"going on RC@{CUTOFF}": float(hits[in_session].mean()) if in_session.any() else None,
        f"beginning RC@{CUTOFF}": float(hits[~in_session].mean()) if (~in_session).any() else None,
    }
    return row, served


def _p_values(
    ranks: Mapping[str, Floats], served: Mapping[str, Served], way: str, other: str, owner: Longs
) -> dict[str, float] | None:
    """Return the p-values of the differences from another way."""
    if way == other:
        return None
    least = (served[way].least - served[other].least)[:, None]
    gain = (_gain(ranks[way]) - _gain(ranks[other]))[:, None]
    return {
        "least served": float(paired_p_values(least, served[other].account)[0]),
        "MRR": float(paired_p_values(gain, owner)[0]),
    }
