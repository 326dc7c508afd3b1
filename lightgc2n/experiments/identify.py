"""Score methods that assign events to people, on accounts whose people are known.

A method sees logs, item vectors learned from training logs, and in one of the two tables the true number of people of
each account. Labels are used to count people and to score, and never reach a method. Methods that need examples get the
number of people of the validation accounts, and are then scored on the other accounts alone.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n import __version__
from lightgc2n.config import LARGEST_SEED, setting, unknown_name
from lightgc2n.data.dataset import Dataset, Longs
from lightgc2n.data.members import Members
from lightgc2n.data.splits import SplitConfig, ranges, split_dataset
from lightgc2n.errors import DataError, SettingError
from lightgc2n.metrics.cluster_agreement import PeopleMeasures, measure_people, people_summary, reliability
from lightgc2n.people.contrast_method import Examples, by_contrast, by_examples, evidence_of, lengths
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.people.reference_methods import REFERENCE_METHODS, CountEstimate, Method
from lightgc2n.people.session_features import item_vectors
from lightgc2n.people.sessions import HOUR, Logs, has_hours, usual_gap
from lightgc2n.progress import say
from lightgc2n.recommending.queries import whole_logs

METHODS: dict[str, Method] = {
    **REFERENCE_METHODS,
    "length-alone": Method(
        partial(by_examples, features=lengths, decay=1e-3), given=False, needs="examples", finder=True
    ),
    "contrast": Method(by_contrast, finder=True),
    "contrast-taught": Method(partial(by_examples, features=evidence_of), given=False, needs="examples", finder=True),
}
GONE = ("habits", "chosen")  # methods of earlier versions
TABLES = ("given", "inferred")
VALIDATION_SHARE = 0.3
SHUFFLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentifyOptions:
    """Which accounts to score, and how events are joined into sessions."""

    accounts: str = setting(
        "all",
        choices=("all", "validation", "test"),
        help="validation: three accounts in ten, to select settings; test: the others.",
    )
    gap: float = setting(
        0.0, at_least=0.0, help="Hours of a pause that ends a session; 0: one hour, or one day if only dates."
    )
    seed: int = setting(0, at_least=0, at_most=LARGEST_SEED, help="Seed of all random draws.")


@dataclass(frozen=True)
class Identified:
    """The outcome of identify."""

    result: dict[str, Any]  # everything, ready for JSON
    measured: dict[str, dict[str, PeopleMeasures]]  # table -> method -> account by account
    accounts: list[str]  # the ids of the scored accounts, in the order of `measured`


@dataclass(frozen=True)
class Known:
    """The true people, which only the scorer sees."""

    member: Longs  # of each event of the logs, -1 if unknown
    people: Longs  # the number of people of each account; guests do not count


def identify(
    dataset: Dataset,
    members: Members,
    methods: Sequence[str],
    options: IdentifyOptions | None = None,
    runs: Sequence[Path] = (),
) -> Identified:
    """Score each method, first with the number of people given, then without."""
    options = options or IdentifyOptions()
    chosen, left_out = _fitting(choose_methods(methods), dataset.times, options, named=methods)
    accounts, places, logs = shown_logs(dataset, options)
    known = known_people(members, places, logs)
    chosen = _with_examples(chosen, dataset, members, options)
    chosen = _with_finder(chosen, logs, options)
    chosen = _of_runs(runs, dataset, accounts) | chosen
    measured: dict[str, dict[str, PeopleMeasures]] = {table: {} for table in TABLES}
    rows: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    for table in TABLES:
        for name, method in chosen.items():
            if getattr(method, table):
                say(f"count {table}: {name}")
                rows[table][name], measured[table][name] = _scored(method, table, logs, known, options.seed)
    result = {
        "made_by": f"lightgc2n {__version__}",
        "dataset": {"name": dataset.name, "checksum": dataset.checksum},
        "options": asdict(options),
        "counts": _counts(logs, known),
        "sessions": _sessions(logs, known),
        "left_out": left_out,
        "tables": rows,
        "versions": {"lightgc2n": __version__, "numpy": np.__version__},
    }
    return Identified(result, measured, [dataset.accounts[account] for account in accounts])


def choose_methods(names: Sequence[str]) -> dict[str, Method]:
    """The methods with these names; `all` selects all of them."""
    for name in names:
        if name in GONE:
            raise SettingError(f"--methods: {name!r} is no longer there: one method is left. Use contrast.")
        if name != "all" and name not in METHODS:
            raise SettingError(f"--methods: {unknown_name('method', name, [*METHODS, 'all'])}")
    return {name: method for name, method in METHODS.items() if name in names or "all" in names}


def shown_logs(dataset: Dataset, options: IdentifyOptions) -> tuple[Longs, Longs, Logs]:
    """The accounts to score, the positions of their events in the dataset, and their logs."""
    if dataset.kind != "logs":
        raise DataError(f"{dataset.name} holds {dataset.kind}, not logs, so an event may occur twice. Use whole logs.")
    start, stop = whole_logs(dataset)
    accounts = np.flatnonzero((stop > start) & in_part(len(start), options))
    places, offsets = ranges(start[accounts], stop[accounts])
    train = split_dataset(dataset, SplitConfig()).train
    say("vectors of items, from training events")
    owner = np.repeat(train.sequence_accounts, np.diff(train.offsets))
    vectors = item_vectors(owner, train.events, train.items, seed=options.seed)
    times = np.asarray(dataset.times[places]) if dataset.times is not None else None
    gap = round(options.gap * HOUR) if options.gap else None
    training = Logs.of_training(train, vectors, gap)
    logs = Logs(offsets, np.asarray(dataset.events[places]), times, vectors, gap, training, accounts)
    return accounts, places, logs


def in_part(accounts: int, options: IdentifyOptions) -> Any:
    """Which accounts belong to the part; the split is the same for every seed."""
    place = np.random.default_rng(0).permutation(accounts) / accounts
    parts = {"all": place >= 0, "validation": place < VALIDATION_SHARE, "test": place >= VALIDATION_SHARE}
    return parts[options.accounts]


def known_people(members: Members, places: Longs, logs: Logs) -> Known:
    """Return the true person of each event, and the number of people of each account."""
    member = np.asarray(members.of_event)[places].astype(np.int64)
    if not (member >= 0).any():
        raise DataError("no event has a label, so nothing can be scored. Use simulate or generate.")
    names = len(members.names)
    acting = np.unique(logs.account[member >= 0] * names + member[member >= 0])
    counted = acting[~members.guests[acting % names]]
    # An account used only by a guest still belongs to one person.
    return Known(member, np.maximum(np.bincount(counted // names, minlength=logs.accounts), 1))


def _fitting(
    methods: Mapping[str, Method], times: Longs | None, options: IdentifyOptions, named: Sequence[str]
) -> tuple[dict[str, Method], dict[str, str]]:
    """Return the methods that fit the logs and options, and why others do not; an error if one was named explicitly."""
    lacking = {}
    if times is None:
        lacking["times"] = "needs times, but the logs have none."
    if times is None or not has_hours(times):
        lacking["hours"] = "needs hours, but the logs have none."
    if options.accounts != "test":
        lacking["examples"] = "learns from the people of validation accounts. Use --accounts test."
    left_out = {name: f"{name}: {lacking[one.needs]}" for name, one in methods.items() if one.needs in lacking}
    for name in named:
        if name in left_out:
            raise DataError(left_out[name])
    return {name: method for name, method in methods.items() if name not in left_out}, left_out


def _with_examples(
    methods: Mapping[str, Method], dataset: Dataset, members: Members, options: IdentifyOptions
) -> dict[str, Method]:
    """Give the validation accounts and their counts to the methods that need examples."""
    if not any(method.needs == "examples" for method in methods.values()):
        return dict(methods)
    _, places, logs = shown_logs(dataset, replace(options, accounts="validation"))
    examples = Examples(logs, known_people(members, places, logs).people)
    return {
        name: replace(one, find=partial(one.find, examples=examples)) if one.needs == "examples" else one
        for name, one in methods.items()
    }


def _with_finder(methods: Mapping[str, Method], logs: Logs, options: IdentifyOptions) -> dict[str, Method]:
    """Give the methods that need one the same people finder, learned once."""
    if not any(method.finder for method in methods.values()):
        return dict(methods)
    say("learning to find people, once for all methods, from training events")
    finder = PeopleFinder.learn(logs.training or logs, np.random.default_rng(options.seed))
    return {
        name: replace(one, find=partial(one.find, finder=finder)) if one.finder else one
        for name, one in methods.items()
    }


def _of_runs(runs: Sequence[Path], dataset: Dataset, accounts: Longs) -> dict[str, Method]:
    methods: dict[str, Method] = {}
    for run in runs:
        from lightgc2n.experiments.identify_latent import latent_methods

        for name, method in latent_methods(run, dataset, accounts).items():
            methods[name if name not in methods else f"{name} ({run.name})"] = method
    return methods


def _scored(method: Method, table: str, logs: Logs, known: Known, seed: int) -> tuple[dict[str, Any], PeopleMeasures]:
    random = np.random.default_rng(seed)
    started = time.perf_counter()
    answer = method.find(logs, known.people if table == "given" else None, random)
    seconds = time.perf_counter() - started
    person = answer.person if isinstance(answer, CountEstimate) else answer
    measured = measure_people(person, known.member, logs.account, known.people)
    row = {"measures": people_summary(measured, seed), "chance": _chance(person, logs, known, random)}
    if isinstance(answer, CountEstimate):
        scored = measured.account
        row["reliability"] = reliability(answer.chances[scored], answer.count[scored], known.people[scored])
    return row | {"seconds": round(seconds, 2)}, measured


def _chance(person: Longs, logs: Logs, known: Known, random: np.random.Generator) -> dict[str, float]:
    """Return the score of the same labels shuffled within each account.

    Events of a session with the same label move together, so that grouping by session alone scores nothing above
    chance.
    """
    names = int(person.max(initial=0)) + 1
    blocks, block = np.unique(logs.session * names + person, return_inverse=True)
    owner = logs.account[np.unique(block, return_index=True)[1]]
    scores: dict[str, list[float]] = {"ARI": [], "shared ARI": [], "accuracy": []}
    for _ in range(SHUFFLES):
        label = (blocks % names)[np.lexsort((random.random(len(blocks)), owner))]
        measured = measure_people(label[block], known.member, logs.account, known.people).columns
        for name, values in scores.items():
            values += measured[name][~np.isnan(measured[name])].tolist()
    return {name: float(np.mean(values)) for name, values in scores.items() if values}


def _counts(logs: Logs, known: Known) -> dict[str, Any]:
    people = np.bincount(known.people)
    return {
        "accounts": logs.accounts,
        "events": len(logs.items),
        "events_of_unknown_members": int((known.member < 0).sum()),
        "accounts_by_people": {str(count): int(number) for count, number in enumerate(people) if number},
    }


def _sessions(logs: Logs, known: Known) -> dict[str, Any]:
    """Return how events were joined into sessions, and how many sessions are of one person."""
    labelled = known.member >= 0
    pairs = np.unique(np.stack([logs.session[labelled], known.member[labelled]]), axis=1)
    people = np.unique(pairs[0], return_counts=True)[1]
    gap = logs.gap if logs.gap is not None else usual_gap(logs.times) if logs.times is not None else None
    return {
        "gap_hours": None if gap is None else gap / HOUR,
        "sessions": int(logs.session[-1]) + 1,
        "events_per_session": len(logs.items) / (int(logs.session[-1]) + 1),
        "of_one_person": float((people == 1).mean()),
    }
