"""Judges two runs on the newest period of a snapshot: the same questions to both, in the same catalogue.

A question is an event of the period whose account has earlier events: the model sees these, and the rank of the event's
item among all items is its answer. Nothing from the cut on is in weights or counts of either model.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightgc2n import zoo
from lightgc2n.data.dataset import Dataset
from lightgc2n.data.split_types import Queries, mask_unseen_accounts
from lightgc2n.data.splits import Training, all_events, split_dataset
from lightgc2n.metrics.paired_tests import SIGNIFICANCE, SameTargets, difference
from lightgc2n.metrics.ranking import Floats, hit, reciprocal_rank
from lightgc2n.metrics.ranks import ranks_in_domains
from lightgc2n.models.contract import Model
from lightgc2n.pipeline.snapshot import before, times_of
from lightgc2n.progress import step
from lightgc2n.training.checkpoints import places_in_run, warm_start
from lightgc2n.training.runs import load_run, plan_of

CUTOFF, SEED = 20, 0
CHALLENGER, LIVE = "challenger", "live"


@dataclass(frozen=True)
class Judgement:
    """How a challenger did beside the live model. Metrics are in percent, differences in percentage points."""

    questions: int
    accounts: int
    mrr: float
    rc: float
    live_mrr: float
    live_rc: float
    difference: float  # in MRR@20, challenger minus live
    low: float  # 95 % interval, resampling accounts
    high: float
    p: float

    def is_worse(self, tolerance: float) -> bool:
        """Whether the loss is significant, or larger than the tolerance."""
        significant = self.high < 0 and self.p < SIGNIFICANCE
        return significant or self.difference < -tolerance

    def __str__(self) -> str:
        return (
            f"{self.questions:,} events of {self.accounts:,} accounts: challenger MRR@20 {self.mrr:.2f} %, "
            f"RC@20 {self.rc:.2f} %; live {self.live_mrr:.2f} % and {self.live_rc:.2f} %; MRR@20 "
            f"{self.difference:+.2f} points (95 %: {self.low:+.2f} to {self.high:+.2f}; p {self.p:.4f})"
        )

    def facts(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Contender:
    """A run, and the time up to which it may count events."""

    run: Path
    until: int


def questions(data: Dataset, cut: int, newest: int, most: int) -> Queries:
    """Return a query for each event of the period whose account has earlier events; at most `most`, drawn at random."""
    times = times_of(data)
    places = np.flatnonzero((times >= cut) & (times <= newest))
    sequence = np.searchsorted(data.offsets, places, side="right") - 1
    with_history = places > data.offsets[sequence]
    places, sequence = places[with_history], sequence[with_history]
    if len(places) > most:
        drawn = np.sort(np.random.default_rng(SEED).choice(len(places), size=most, replace=False))
        places, sequence = places[drawn], sequence[drawn]
    owner = np.asarray(data.sequence_accounts)[sequence].astype(np.int32)
    start = np.asarray(data.offsets)[sequence].astype(np.int64)
    return Queries(owner, owner, start, places, np.asarray(data.events[places]), places, data.events, data.times)


def judge(data: Dataset, queries: Queries, challenger: Contender, live: Contender) -> Judgement:
    """Rank the same queries with both contenders and compare the ranks."""
    ranks = {CHALLENGER: _ranks(CHALLENGER, data, queries, challenger)}
    ranks[LIVE] = ranks[CHALLENGER] if live == challenger else _ranks(LIVE, data, queries, live)
    owner = queries.owner.astype(np.int64)
    columns = {name: reciprocal_rank(own, CUTOFF)[:, None] for name, own in ranks.items()}
    same = SameTargets(owner, columns)
    tested = difference(data.name, "newest period", CHALLENGER, same, LIVE, same)
    (mrr, rc), (live_mrr, live_rc) = (_means(ranks[name]) for name in (CHALLENGER, LIVE))
    return Judgement(
        len(queries), len(np.unique(owner)), mrr, rc, live_mrr, live_rc, tested.value, tested.low, tested.high, tested.p
    )


def _means(ranks: Floats) -> tuple[float, float]:
    """MRR@20 and RC@20 in percent."""
    return 100 * float(reciprocal_rank(ranks, CUTOFF).mean()), 100 * float(hit(ranks, CUTOFF).mean())


def domain_of(data: Dataset, run: Path) -> Dataset:
    """Return the part of the dataset that the run is for."""
    domain = plan_of(run).domain
    return data.only(domain) if domain else data


def counts(run: Path, data: Dataset) -> bool:
    """Return whether the model of a run has counts that can be brought up to newer events without training."""
    _, model, _ = load_run(run)
    known = all_events(data, plan_of(run).split)
    return model.tensors_for(known, places_in_run(run, "items", data.items)) is not None


def _ranks(name: str, data: Dataset, queries: Queries, one: Contender) -> Floats:
    plan = plan_of(one.run)
    model, known = _model_at(one.run, before(data, one.until))
    with_events = np.zeros(len(data.accounts), dtype=bool)
    with_events[known.sequence_accounts[np.diff(known.offsets) > 0]] = True
    by_domain = plan.split.ask == "each-domain" and len(data.domains) > 1
    whole = type(data.domains[0])("all", 0, len(data.items))
    with step(f"judging {name}", total=len(queries)) as progress:
        ranks = ranks_in_domains(
            name,
            model,
            mask_unseen_accounts(queries, with_events),
            data.domains if by_domain else (whole,),
            learned=known.popularity > 0,
            progress=progress.advance,
        )
    return np.where(known.popularity[queries.target] > 0, ranks, np.inf)  # an item that a model cannot list is a miss


def _model_at(run: Path, known_data: Dataset) -> tuple[Model, Training]:
    """Return the model of a run over the catalogue of the data, and the events that it counts.

    A model without counts keeps the part of the events that its protocol trains on, as its bundle does.
    """
    name, model, _ = load_run(run)
    plan = plan_of(run)
    known = all_events(known_data, plan.split)
    tensors = model.tensors_for(known, places_in_run(run, "items", known_data.items))
    if tensors is not None:
        model = zoo.entry_of(name).restore(model.config, tensors)
        model.refresh(known)
        return model.eval(), known
    known = split_dataset(known_data, plan.split).train
    torch.manual_seed(plan.training.seed)
    model = zoo.build(name, known, plan.settings)
    warm_start(model, known_data, run)
    return model.eval(), known
