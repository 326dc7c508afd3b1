"""Score predictions of who is watching on accounts whose people are known: log loss and accuracy of the true person.

A query is a session after the first cut of the protocol `time`. Methods predict whose session it is before its first
event and after each of its first events. People are estimated from the events before the session, by a finder trained
on events before the cut. Labels of earlier events match estimated to true people; labels of the session are targets.

found people   the probability of an estimated person is divided among the true people as they share the earlier events
               (`shared`), or given to one true person of a one-to-one matching (`one to one`)
true people    labels of all earlier events are given: an upper reference that no method can reach in practice

shares so far  the smoothed share of each person in the earlier sessions
last stays     the person of the last session with a fitted probability, or else the shares so far
who            the model of `people.who_is_watching`
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lightgc2n import __version__
from lightgc2n.data.dataset import Dataset, Ints, Longs
from lightgc2n.data.members import Members
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.errors import DataError
from lightgc2n.experiments.identify import IdentifyOptions, in_part
from lightgc2n.metrics.cluster_agreement import matching
from lightgc2n.metrics.intervals import estimates, paired_p_values
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.people.sessions import Floats, Matrix, session_numbers, unit_means
from lightgc2n.people.who_is_watching import CONSTANTS, Past, WhoConstants, item_vectors_of, who_is_watching
from lightgc2n.progress import step
from lightgc2n.recommending.load_run import finder_for
from lightgc2n.recommending.queries import whole_logs

STEPS = 4  # before the first event, and after one, two and three events
MOST = 10  # sessions of one account
FEWEST = 5  # earlier events
PSEUDO = 1.0  # events of the account that each found person shares, for smoothing
STAYS = np.arange(0, 1.0, 0.05)
UNMATCHED = np.array(
    [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5]
)  # share that a one-to-one match leaves to others
LEAST = 1e-3  # probability that is spread over all people, so that no loss is infinite
FOUND, KNOWN = "found", "known"
REFERENCES = ("shares so far", "last stays")


@dataclass(frozen=True)
class SessionQuery:
    """A session: what was known before it, and who acted in it."""

    account: int
    past: Past
    true: Floats  # [E, T] who did each earlier event; T people
    at: int
    begun: Ints
    acted: Longs  # [B] who did each event of the session, below T; -1 if unknown or not seen before
    vectors: Matrix
    context: int | None = None


def score_who(dataset: Dataset, members: Members, options: IdentifyOptions) -> dict[str, Any]:
    """Return log loss and accuracy of each method after each step, ready for JSON."""
    if dataset.times is None:
        raise DataError(f"{dataset.name}: predicting who is watching needs times, and the log has none.")
    finder = finder_for(split_dataset(dataset, SplitConfig(protocol="time")).train, None)
    queries = session_queries(dataset, members, finder, options.seed)
    validation = in_part(len(dataset.accounts), IdentifyOptions(accounts="validation"))
    fitted = fit_references([one for one in queries if validation[one.account]])
    about = in_part(len(dataset.accounts), options)
    scored = [one for one in queries if about[one.account]]
    if not scored:
        raise DataError(f"{dataset.name}: no session after the cut of protocol time has {FEWEST} earlier events.")
    tables = {match: table(scored, match, fitted, options.seed) for match in ("shared", "one to one")}
    people = [one.past.share.shape[1] for one in scored]
    return {
        "made_by": f"lightgc2n {__version__}",
        "dataset": {"name": dataset.name, "checksum": dataset.checksum},
        "options": asdict(options),
        "questions": len(scored),
        "accounts": len({one.account for one in scored}),
        "of_one_person_found": float(np.mean(np.array(people) == 1)),
        "of_people_not_seen_before": float(np.mean([one.acted[0] < 0 for one in scored])),
        "fitted": fitted,
        "context": dataset.contexts.column if dataset.contexts is not None else None,
        "tables": tables,
    }


def session_queries(dataset: Dataset, members: Members, finder: PeopleFinder, seed: int) -> list[SessionQuery]:
    """Return the sessions after the first cut, at most MOST of an account, drawn at random."""
    assert dataset.times is not None
    start, stop = whole_logs(dataset)
    cut = split_dataset(dataset, SplitConfig(protocol="time")).validation
    early = int(np.asarray(dataset.times)[cut.target_event].min())
    random, queries = np.random.default_rng(seed), list[SessionQuery]()
    with step("people of earlier events", total=len(start)) as progress:
        for account in range(len(start)):
            queries += _of_account(
                dataset, members, finder, account, slice(start[account], stop[account]), early, random
            )
            progress.advance(1)
    return queries


def _of_account(
    dataset: Dataset,
    members: Members,
    finder: PeopleFinder,
    account: int,
    log: slice,
    early: int,
    random: np.random.Generator,
) -> Iterator[SessionQuery]:
    items, times = np.asarray(dataset.events[log]), np.asarray(dataset.times[log])  # type: ignore[index]
    member = np.asarray(members.of_event[log]).astype(np.int64)
    context = None if dataset.contexts is None else np.asarray(dataset.contexts.of_event[log])
    session = session_numbers(np.array([0, len(items)]), times, finder.gap)
    places = np.flatnonzero(np.diff(session, prepend=-1))
    places = places[(places >= FEWEST) & (times[places] >= early)] if len(places) else places
    if len(places) > MOST:
        places = np.sort(random.choice(places, MOST, replace=False))
    for place in places.tolist():
        names = np.unique(member[:place][member[:place] >= 0])
        if not len(names):
            continue
        end = min(int(np.searchsorted(session, session[place], side="right")), place + STEPS - 1)
        known = np.isin(member[place:end], names)
        acted = np.where(known, np.searchsorted(names, member[place:end]), -1)
        share = finder.find(items[:place], times[:place], row=account).share
        here = None if context is None else context[:place]
        past = Past(items[:place], times[:place], share, session[:place], here)
        now = None if context is None or context[place] < 0 else int(context[place])
        true = (member[:place, None] == names).astype(np.float64)
        yield SessionQuery(
            account, past, true, int(times[place]), items[place:end], acted, item_vectors_of(finder, account), now
        )


def of_true_people(query: SessionQuery) -> Past:
    """Return the earlier events with their true labels in place of the estimated people."""
    past, known = query.past, query.true.any(axis=1)
    times = None if past.times is None else past.times[known]
    context = None if past.context is None else past.context[known]
    return Past(past.items[known], times, query.true[known], past.session[known], context)


def shares_so_far(past: Past) -> Floats:
    """Return the smoothed share of each person in the sessions."""
    share = np.asarray(unit_means(past.share, _units(past)), dtype=np.float64)
    return (share.sum(axis=0) + 1 / share.shape[1]) / (len(share) + 1)


def last_stays(past: Past, rate: float) -> Floats:
    """Return the person of the last session with probability `rate`, or else the shares so far."""
    last = unit_means(past.share, _units(past))[-1]
    return rate * last + (1 - rate) * shares_so_far(past)


def _units(past: Past) -> Longs:
    return np.cumsum(np.diff(past.session, prepend=past.session[:1]) != 0)


def true_people_of(query: SessionQuery, match: str, unmatched: float) -> Floats:
    """Return the probability of each true person for each person found [K, T], by earlier events alone."""
    together = query.past.share.T @ query.true
    everybody = query.true.sum(axis=0) / max(query.true.sum(), 1)
    if match == "shared":
        return (together + PSEUDO * everybody) / (together.sum(axis=1, keepdims=True) + PSEUDO)
    stands_for = np.tile(everybody, (len(together), 1))
    for estimated, true in enumerate(matching(np.rint(together).astype(np.int64)[None])[0].tolist()):
        if true >= 0:
            stands_for[estimated] *= unmatched
            stands_for[estimated, true] += 1 - unmatched
    return stands_for


def fit_references(queries: list[SessionQuery]) -> dict[str, float]:
    """Return the rate at which the last person stays, and the share of a one-to-one match that is left to others."""
    if not queries:
        return {"found stays": 0.0, "known stays": 0.0, "unmatched": 0.1}
    fitted = {}
    for whose in (FOUND, KNOWN):
        fitted[f"{whose} stays"] = _best(STAYS, lambda rate, whose=whose: _loss_of_stays(queries, whose, rate))  # type: ignore[misc]
    fitted["unmatched"] = _best(
        UNMATCHED,
        lambda left: np.nanmean(
            [loss(shares_so_far(one.past) @ true_people_of(one, "one to one", left), one, 0) for one in queries]
        ),
    )
    return fitted


def _loss_of_stays(queries: list[SessionQuery], whose: str, rate: float) -> float:
    def chances(one: SessionQuery) -> Floats:
        if whose == FOUND:
            return last_stays(one.past, rate) @ true_people_of(one, "shared", 0.0)
        return last_stays(of_true_people(one), rate)

    return float(np.nanmean([loss(chances(one), one, 0) for one in queries]))


def _best(values: Floats, loss_of: Callable[[float], Any]) -> float:
    return float(min(values.tolist(), key=loss_of))


def loss(chances: Floats, query: SessionQuery, after: int) -> float:
    """Return the log loss of the true person after so many events of the session; NaN where the person is unknown."""
    true = _true(query, after)
    return float("nan") if true < 0 else -float(np.log((1 - LEAST) * chances[true] + LEAST / len(chances)))


def _true(query: SessionQuery, after: int) -> int:
    """Return the person of the session's first event, or of its newest one."""
    place = max(after - 1, 0)
    return int(query.acted[place]) if place < len(query.acted) else -1


def methods(fitted: dict[str, float], with_context: bool) -> dict[str, Callable[[SessionQuery, Past], Floats]]:
    """Return each method: the chances of the people of a past [1 + B, K] or [K]."""

    def who(query: SessionQuery, past: Past, context: int | None = None, constants: WhoConstants = CONSTANTS) -> Floats:
        return who_is_watching(past, query.at, query.begun, query.vectors, context, constants)

    chosen: dict[str, Callable[[SessionQuery, Past], Floats]] = {
        "shares so far": lambda _, past: shares_so_far(past),
        "last stays": lambda _, past: last_stays(past, fitted["rate"]),
        "who": who,
    }
    if with_context:
        chosen["who, with context"] = lambda query, past: who(query, past, query.context)
    return chosen


def table(queries: list[SessionQuery], match: str, fitted: dict[str, float], seed: int) -> dict[str, Any]:
    """Return the rows of one way of matching: log loss, accuracy and p-values by step."""
    with_context = any(one.context is not None for one in queries)
    chances: dict[str, list[Floats]] = {}
    for whose in (FOUND, KNOWN):
        chosen = methods(fitted | {"rate": fitted[f"{whose} stays"]}, with_context)
        for name, method in chosen.items():
            rows = []
            for one in queries:
                past = one.past if whose == FOUND else of_true_people(one)
                estimate = np.atleast_2d(method(one, past))
                rows.append(estimate @ true_people_of(one, match, fitted["unmatched"]) if whose == FOUND else estimate)
            chances[f"{whose}: {name}"] = rows
    return {name: _row(name, chances, queries, seed) for name in chances}


def _row(name: str, chances: dict[str, list[Floats]], queries: list[SessionQuery], seed: int) -> dict[str, Any]:
    owner = np.array([one.account for one in queries])
    references = [one for one in chances if one.partition(": ")[2] in REFERENCES and one != name]
    steps = []
    for after in range(STEPS):
        losses = _losses(chances[name], queries, after)
        there = ~np.isnan(losses)
        if not there.any():
            break
        right: npt.NDArray[np.float64] = np.array(
            [_is_right(rows, one, after) for rows, one in zip(chances[name], queries, strict=True)]
        )
        value = estimates({"loss": losses[there], "right": right[there]}, owner[there], seed)
        against = np.column_stack([losses - _losses(chances[one], queries, after) for one in references])[there]
        p_values = paired_p_values(against, owner[there], seed)
        steps.append(
            {
                "begun": after,
                "questions": int(there.sum()),
                "log loss": asdict(value["loss"]),
                "accuracy": asdict(value["right"]),
                "below": {
                    one: {"by": float(-difference), "p": float(p)}
                    for one, difference, p in zip(references, against.mean(axis=0), p_values, strict=True)
                },
            }
        )
    return {"steps": steps}


def _losses(rows: list[Floats], queries: list[SessionQuery], after: int) -> npt.NDArray[np.float64]:
    """Return the loss of each query; a method that does not read the session's items has the same at every step."""
    pairs = zip(rows, queries, strict=True)
    return np.array([loss(row[min(after, len(row) - 1)], one, after) for row, one in pairs])


def _is_right(row: Floats, query: SessionQuery, after: int) -> float:
    true = _true(query, after)
    return float("nan") if true < 0 else float(row[min(after, len(row) - 1)].argmax() == true)
