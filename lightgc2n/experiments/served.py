"""Lists for the person who is likely acting, beside the account's own list, where it is known who acted.

Every event after the test's cut is a question, asked with the account's history up to it. A way of asking names
histories and how much the answer to each counts; the same trained model answers all. Its list is a mixture of these
answers and the account's own, with one weight where a session goes on and one where it begins, both chosen on the
events between the two cuts. Labels choose these two numbers there, score, and make the last two ways.

account          the account's own list
likely person    the events of each person found, by how likely they act
likely of five   the same, five people being looked for in every account
likely sessions  the account up to the end of each of its newest sessions, the newest counting most, and those of
                 people who are likely acting (of five)
newest sessions  no people: the account up to the end of each of its newest sessions, the newest counting most
true people      the events of everybody who is really there, by how likely they act: finding people without an error
true person      the events of who really acts, which no method may know
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
from lightgc2n.data.batches import Asked, make_batch
from lightgc2n.data.dataset import Dataset, Domain, Longs
from lightgc2n.data.members import Members
from lightgc2n.data.questions import Queries
from lightgc2n.data.splits import Split, SplitConfig, split_dataset
from lightgc2n.errors import DataError, SettingError
from lightgc2n.evaluation.metrics import Floats, paired_p_values
from lightgc2n.evaluation.people import Served, measure_served
from lightgc2n.evaluation.ranks import asked_in_domains, refuse_not_finite, rows_per_tile, targets_in_history
from lightgc2n.experiments.people import IdentifyOptions, in_part
from lightgc2n.experiments.rolling import (
    Rolling,
    Way,
    asked_with,
    likely_person,
    likely_sessions,
    newest_sessions,
    rolling,
    true_people,
    true_person,
)
from lightgc2n.experiments.single import ready_for_test
from lightgc2n.layers.ranking import rank_by_counting
from lightgc2n.models.contract import Model
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.finding import PeopleFinder
from lightgc2n.progress import step
from lightgc2n.recommending.finders import finder_for, finder_place
from lightgc2n.training.runs import RUN, load_run, plan_of, refuse_other_data

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
CUTOFF = 20
OWN = "account"


@dataclass(frozen=True)
class Contestant:
    """A model that is asked."""

    name: str
    model: Model
    is_floor: bool
    items: int

    @torch.no_grad()
    def answers(self, encoded: Any, queries: Queries, fold_in: bool) -> Float[Tensor, "B M"]:
        """Chances of all items; of a floor, whose scores are no logits, its scores from 0 to 1."""
        score: Any = self.model.fold_in_scores if fold_in else self.model.scores
        scores = score(encoded, make_batch(queries), Domain("all", 0, self.items)).float()
        refuse_not_finite(self.name, scores)
        if not self.is_floor:
            return torch.softmax(scores, dim=1)
        low, high = scores.amin(dim=1, keepdim=True), scores.amax(dim=1, keepdim=True)
        return (scores - low) / (high - low).clamp(min=1e-12)


@dataclass(frozen=True)
class Ranked:
    """Ranks of all targets by each way, for each weight of WEIGHTS [W, Q]."""

    asked: Rolling
    account: Longs
    member: Longs  # who acted at each question
    by_way: dict[str, Floats]


def serve_named(name: str, dataset: Dataset, members: Members, options: IdentifyOptions) -> dict[str, Any]:
    """`serve` of a run on this dataset, whose finder is kept in its folder, or of a floor by its name."""
    if options.gap:
        raise SettingError("--gap: with --serve, sessions end as the finder has learned them. Leave --gap out.")
    about = in_part(len(dataset.accounts), options)
    member = np.asarray(members.of_event).astype(np.int64)
    if name in zoo.ZOO and zoo.entry_of(name).is_floor:
        split = split_dataset(dataset, SplitConfig(protocol="time"))
        model = zoo.build(name, split.train, {})
        model.calibrate(lambda: asked_in_domains(split.validation, split.catalogues, "cpu"))
        return serve(dataset, split, member, finder_for(split.train, None), name, model, about, is_floor=True)
    if not (Path(name) / RUN).is_file():
        floors = [one for one, entry in zoo.ZOO.items() if entry.is_floor]
        raise SettingError(f"--serve: {name!r} is neither a run nor a floor. Floors are {', '.join(floors)}.")
    plan = plan_of(Path(name))
    if plan.split.protocol != "time" or plan.domain or not plan.split.validation:
        raise DataError(f"{name}: --serve needs a run on all items, with validation. Train it with --protocol time.")
    refuse_other_data(Path(name), dataset)
    split = split_dataset(dataset, plan.split)
    label, model, _ = load_run(Path(name))
    finder = finder_for(split.train, finder_place(Path(name), dataset.checksum, plan.domain, plan.split))
    return serve(dataset, split, member, finder, label, model, about, is_floor=False)


def serve(
    dataset: Dataset,
    split: Split,
    member: Longs,
    finder: PeopleFinder,
    name: str,
    model: Model,
    about: npt.NDArray[np.bool_],
    *,
    is_floor: bool,
) -> dict[str, Any]:
    """What each way of asking gives the members of the accounts, ready for JSON.

    Args:
        split: of protocol `time`.
        member: of each event of the dataset; -1 where it is unknown.
        about: which accounts are asked about.
    """
    contestant = Contestant(name, model.eval(), is_floor, len(dataset.items))
    learned = (split.train.popularity > 0) | model.scores_unseen_items
    chosen_on = _ranked(dataset, split, member, finder, contestant, "validation", learned, about)
    learned = ready_for_test(model, split)
    tested = _ranked(dataset, split, member, finder, contestant, "test", learned, about)
    rows, ranks, served = {}, {}, {}
    for way, by_weight in tested.by_way.items():
        weights = (0, 0) if way == OWN else choose(chosen_on, way)
        before = _mixed(chosen_on.by_way[way], chosen_on.asked.going_on, weights)
        ranks[way] = _mixed(by_weight, tested.asked.going_on, weights)
        rows[way], served[way] = _measured(ranks[way], tested)
        rows[way] |= {"weight going on": WEIGHTS[weights[0]], "weight beginning": WEIGHTS[weights[1]]}
        rows[way]["validation"] = _measured(before, chosen_on)[0]
    for way in rows:
        rows[way]["p"] = _p_values(ranks, served, way, tested.account)
    return {
        "made_by": f"lightgc2n {__version__}",
        "dataset": {"name": dataset.name, "checksum": dataset.checksum},
        "model": name,
        "questions": len(tested.member),
        "accounts": len(served[OWN].account),
        "going_on": float(tested.asked.going_on.mean()),
        "rows": rows,
    }


def _ranked(
    dataset: Dataset,
    split: Split,
    member: Longs,
    finder: PeopleFinder,
    contestant: Contestant,
    part: str,
    learned: Any,
    about: npt.NDArray[np.bool_],
) -> Ranked:
    asked = rolling(dataset, split, part, finder.gap).of_accounts(about)
    ways = {
        "likely person": likely_person(dataset, asked, finder),
        "likely of five": likely_person(dataset, asked, finder, MOST_PEOPLE),
        "likely sessions": likely_sessions(dataset, asked, finder, MOST_PEOPLE),
        "newest sessions": newest_sessions(asked),
        "true people": true_people(dataset, asked, member),
        "true person": true_person(asked, member),
    }
    ranks = {way: np.empty((len(WEIGHTS), len(asked.queries))) for way in ways}
    rows, encoded = rows_per_tile(contestant.items), contestant.model.encode()
    with step(f"{contestant.name}: {part}", total=len(asked.queries)) as progress:
        for first in range(0, len(asked.queries), rows):
            questions = np.arange(first, min(first + rows, len(asked.queries)))
            for way, found in _tile(dataset, asked, ways, contestant, encoded, questions, learned).items():
                ranks[way][:, questions] = found
            progress.advance(len(questions))
    account, acted = asked.queries.owner.astype(np.int64), member[asked.queries.target_event]
    return Ranked(asked, account, acted, {OWN: ranks["true person"][:1], **ranks})


def _tile(
    dataset: Dataset,
    asked: Rolling,
    ways: Mapping[str, Way],
    contestant: Contestant,
    encoded: Any,
    questions: Longs,
    learned: Any,
) -> dict[str, Floats]:
    """The ranks of some questions by each way, for each weight."""
    queries = asked.queries.select(questions)
    own = contestant.answers(encoded, queries, fold_in=False)
    shown = Asked(make_batch(queries), torch.as_tensor(queries.target.astype(np.int64)))
    missed = ~targets_in_history(shown).numpy() & ~learned[queries.target]
    alone, found = rank_by_counting(own, shown.target).numpy(), {}
    for way, ask in ways.items():
        answer = _answered(dataset, asked, ask, contestant, encoded, questions)
        # Where nobody has done anything yet, the account's own list stays.
        answer = torch.where(answer.any(dim=1, keepdim=True), answer, own)
        mixed = (torch.lerp(own, answer, weight) for weight in WEIGHTS[1:])
        ranks = [alone, *(rank_by_counting(scores, shown.target).numpy() for scores in mixed)]
        found[way] = np.where(missed, np.inf, np.stack(ranks))
    return found


def _answered(
    dataset: Dataset, asked: Rolling, ask: Way, contestant: Contestant, encoded: Any, questions: Longs
) -> Float[Tensor, "B M"]:
    """The weighted mean of the answers to each question's histories."""
    histories = [[one for one in ask(question) if len(one.places)] for question in questions.tolist()]
    weight = torch.tensor([one.weight for some in histories for one in some], dtype=torch.float32)
    of = torch.repeat_interleave(torch.arange(len(questions)), torch.tensor([len(some) for some in histories]))
    total = torch.zeros(len(questions)).index_add_(0, of, weight)
    mean = torch.zeros(len(questions), contestant.items)
    if len(of):
        answers = contestant.answers(encoded, asked_with(dataset, asked, questions, histories), fold_in=True)
        mean.index_add_(0, of, answers * (weight / total[of])[:, None])
    return mean


def choose(ranked: Ranked, way: str) -> tuple[int, int]:
    """The two weights, as places in WEIGHTS, that serve the least served best without a loss of MRR; (0, 0) if none."""
    going_on, best, value = ranked.asked.going_on, (0, 0), -1.0
    least_mrr = _gain(_mixed(ranked.by_way[way], going_on, (0, 0))).mean()
    for weights in product(range(len(WEIGHTS)), range(len(WEIGHTS))):
        ranks = _mixed(ranked.by_way[way], going_on, weights)
        least = measure_served(ranks <= CUTOFF, ranked.account, ranked.member).least.mean()
        if least > value and _gain(ranks).mean() >= least_mrr:
            best, value = weights, float(least)
    return best


def _mixed(by_weight: Floats, going_on: Any, weights: tuple[int, int]) -> Floats:
    return np.where(going_on, by_weight[weights[0]], by_weight[weights[1]])


def _gain(ranks: Floats) -> Floats:
    return np.where(ranks <= CUTOFF, 1 / ranks, 0.0)


def _measured(ranks: Floats, ranked: Ranked) -> tuple[dict[str, Any], Served]:
    hits = ranks <= CUTOFF
    served = measure_served(hits, ranked.account, ranked.member)
    going_on = ranked.asked.going_on
    row = {
        f"least served RC@{CUTOFF}": float(served.least.mean()),
        f"smaller members RC@{CUTOFF}": served.smaller,
        f"RC@{CUTOFF}": float(hits.mean()),
        f"MRR@{CUTOFF}": float(_gain(ranks).mean()),
        f"going on RC@{CUTOFF}": float(hits[going_on].mean()) if going_on.any() else None,
        f"beginning RC@{CUTOFF}": float(hits[~going_on].mean()) if (~going_on).any() else None,
    }
    return row, served


def _p_values(
    ranks: Mapping[str, Floats], served: Mapping[str, Served], way: str, owner: Longs
) -> dict[str, float] | None:
    """How likely differences this large from the account's own list are by chance."""
    if way == OWN:
        return None
    least = (served[way].least - served[OWN].least)[:, None]
    gain = (_gain(ranks[way]) - _gain(ranks[OWN]))[:, None]
    return {
        "least served": float(paired_p_values(least, served[OWN].account)[0]),
        "MRR": float(paired_p_values(gain, owner)[0]),
    }
