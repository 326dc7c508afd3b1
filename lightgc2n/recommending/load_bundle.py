"""A recommender over a bundle, with onnxruntime and numpy; it answers like the run that was exported.

A device analyses histories that are not in the training data; one item table is enough for these, and it is in the
device part. A training account is described by an item table that was learned without it (cross-fitting), so the server
part has the tables of the other folds, and the fold of each account.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lightgc2n.errors import DataError, SettingError, option
from lightgc2n.people import assigning, count_people, habits, pair_evidence, session_features, sessions
from lightgc2n.people import finder as people_finder
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.count_people import FEATURES
from lightgc2n.people.finder import COUNTING, GROUP, KINDS, TOGETHER, PeopleFinder, finder_of
from lightgc2n.people.sessions import DAY
from lightgc2n.progress import say
from lightgc2n.recommending import bundle_schema as schema
from lightgc2n.recommending.bundle_files import (
    ACCOUNT_TABLES,
    FINDER,
    FINDER_FACTS,
    GRAPH,
    HISTORIES,
    SERVER,
    BundleFiles,
    open_bundle,
)
from lightgc2n.recommending.bundle_parts import MIDDLE, ItemVectors, read_device, read_server, read_tables
from lightgc2n.recommending.bundle_schema import EXPORT_AGAIN, need
from lightgc2n.recommending.onnx_scorer import OnnxScorer, check_graph, check_trial_run, open_session
from lightgc2n.recommending.queries import Histories, Source
from lightgc2n.recommending.recommender import ANALYSED_SESSIONS, Recommender

VECTORS, SCALES, EVENTS, FOLD = "tables.vectors", "tables.scales", "tables.events", "fold"
DAYS = ("tables.first", "tables.middle")
TABLES = (VECTORS, EVENTS, *DAYS, GROUP, TOGETHER)
BYTES_AND_SCALES = 2  # the schema that stored vectors as bytes with a scale for each row
MOST_LOG_ODDS = 700  # exp overflows beyond; learned ones reach about 20
NIBBLE_MIDDLE = 8  # the four bits that represent 0


def load_bundle(folder: Path, threads: int = 1) -> Recommender:
    """The recommender over the bundle in `folder`; raise an error before any of it is used if it is damaged.

    Args:
        threads: of one graph run; a service that computes several requests at once does well with one.
    """
    files = open_bundle(folder)
    device = read_device(files)
    server = read_server(files, device)
    finder, vectors = read_finder(files, len(server.dataset.accounts)), ItemVectors(files)
    timed = HISTORIES not in files.server or finder is None or finder.gap is None or server.dataset.times is not None
    need(timed, f"{files.folder / SERVER / HISTORIES}: times", "a table, as people are found by times", "nothing")
    graph = files.folder / GRAPH
    session = open_session(graph, threads)
    check_graph(session, files.config, str(graph))
    scorer = OnnxScorer(device, server, session, vectors)
    check_trial_run(scorer, str(graph))
    files.refuse_changed()
    everyone = np.ones(len(server.dataset.accounts), dtype=bool)
    histories = Histories(server.dataset, everyone, stored=not server.without_histories)
    catalogue = device.catalogue
    source = Source(histories, _finder_of(finder), finder is not None, lambda: catalogue, device.config, device.card,
                    files.population)  # fmt: skip
    return Recommender(device.model, scorer, source)


def _finder_of(finder: PeopleFinder | None) -> Callable[[], PeopleFinder]:
    def checked() -> PeopleFinder:
        if finder is None:
            raise SettingError(
                f"this bundle cannot find people: it was exported with {option('--no-people', 'people=False')}, or "
                f"from data without whole logs. {EXPORT_AGAIN}"
            )
        return finder

    return checked


def finder_constants() -> dict[str, Any]:
    """The numbers in `finder.json` that the page's JavaScript computes with, as this version of the code has them."""
    return {
        "analysed_sessions": ANALYSED_SESSIONS,  # the newest of a history
        "centre_steps": assigning.CENTRE_STEPS,  # of the K-means start
        "doubt": assigning.DOUBT,  # spread evenly over all people before the first mean-field step
        "farthest_count": count_people.FARTHEST,  # standard deviations at which count features are clipped
        "farthest_pair": pair_evidence.FARTHEST,  # standard deviations at which pair features are clipped
        "fit_weight": assigning.FIT_WEIGHT,
        "half_an_hour": session_features.HALF_AN_HOUR,  # in days
        "landmarks": sessions.LANDMARKS,  # of the compared sessions, with which each other one is compared
        "least_ratio": pair_evidence.LEAST_RATIO,
        "most_people": MOST_PEOPLE,
        "most_sessions": people_finder.MOST_SESSIONS,  # of which all pairs are compared
        "pair_shares": count_people.SHARES.tolist(),
        "same_person_share": pair_evidence.SHARE,
        "steps": assigning.STEPS,  # of mean field
        "sum_weight": assigning.SUM_WEIGHT,
        "taste_prior": habits.TASTE,  # Dirichlet weight of a group of items
        "weekday_prior": habits.WEEKDAYS,
        "weekend": sessions.WEEKEND,
    }


def read_finder(files: BundleFiles, accounts: int) -> PeopleFinder | None:
    """Read and check the people finder of a bundle; None if it has none.

    Args:
        accounts: the number of accounts in the server part.
    """
    if FINDER not in files.device:
        return None
    need(FINDER_FACTS in files.device, f"{files.folder / FINDER_FACTS}", "a file of the bundle", "nothing")
    facts = files.read_json(FINDER_FACTS)
    schema.FINDER_FIELDS.check(facts, f"{files.folder / FINDER_FACTS}: ")
    _compare_constants(facts.get("constants", {}), files)
    arrays, fold = _read(files, facts["gap"] is not None, accounts)
    _check_odds(arrays, float(facts["prior"]), f"{files.folder / FINDER}: contrast")
    finder = finder_of(facts, arrays | {FOLD: fold})
    _trial_run(finder, files, accounts)
    return finder


def _compare_constants(written: dict[str, Any], files: BundleFiles) -> None:
    current = finder_constants()
    if changed := sorted(name for name in written if name in current and written[name] != current[name]):
        say(
            f"{files.folder / FINDER_FACTS}: constants.{', '.join(changed)}: changed since the export, so browsers may "
            f"count people differently than this service. {EXPORT_AGAIN}"
        )


def _read(files: BundleFiles, timed: bool, accounts: int) -> tuple[dict[str, Any], Any]:
    """The arrays of the finder, and the fold of each account."""
    old = files.config["schema"] == BYTES_AND_SCALES and files.config.get("int8", False)
    lengths, path = {"items": files.config["items"], "accounts": accounts}, files.folder / FINDER
    learned = read_tables(files, FINDER, schema.finder_tables(timed), lengths)
    features, weights = len(learned["count.centre"]), len(learned["count.weights"])
    need(features in schema.COUNTED_BY, f"{path}: count.centre", f"one of {schema.COUNTED_BY} numbers", features)
    need(weights == 2 * features + 1, f"{path}: count.weights", f"{2 * features + 1} rows", weights)
    tables = _as_floats(read_tables(files, FINDER, schema.item_tables("tables", old, timed), lengths))
    need(len(tables[EVENTS]) > 0, f"{path}: {EVENTS}", "a table", "nothing")
    _check_habits(learned | tables, features, path)
    fold = np.zeros(accounts, dtype=np.int64)
    if ACCOUNT_TABLES in files.server:
        name = f"{SERVER}/{ACCOUNT_TABLES}"
        own = _as_floats(read_tables(files, name, schema.item_tables("more tables", old, timed), lengths))
        need(own.keys() == tables.keys(), f"{files.folder / name}", f"{', '.join(tables)}", ", ".join(own))
        tables = {key: np.concatenate([tables[key], own[key]]) for key in tables}
        fold = read_tables(files, name, {FOLD: schema.FOLD}, lengths)[FOLD].astype(np.int64)
        last = int(fold.max(initial=0))
        need(last < len(tables[EVENTS]), f"{files.folder / name}: {FOLD}", f"below {len(tables[EVENTS])}", last)
    return learned | tables, fold


def _check_habits(arrays: dict[str, Any], features: int, path: Path) -> None:
    """Check that the tables of habits are all there or all missing; earlier versions learned nothing of habits."""
    names = (GROUP, TOGETHER, KINDS, COUNTING)
    if features == FEATURES or any(name in arrays for name in names):
        for name in names:
            need(name in arrays, f"{path}: {name}", "a table", "nothing")


def _check_odds(arrays: dict[str, Any], prior: float, where: str) -> None:
    """Check that the odds of any two sessions are finite."""
    reach = [np.abs(arrays[f"contrast.{name}"]).sum() for name in ("outward", "straight", "constant")]
    largest = float(reach[0] + pair_evidence.FARTHEST * reach[1] + reach[2]) + abs(prior)
    need(largest < MOST_LOG_ODDS, where, f"log odds below {MOST_LOG_ODDS}", largest)


def _as_floats(arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays with the types that the finder uses: int64 counts, float vectors."""
    vectors = arrays[VECTORS]
    if SCALES in arrays:  # schema 2: a number is a byte, and each row has a scale
        vectors = (vectors.astype(np.float32) - np.float32(MIDDLE)) * arrays[SCALES][..., None]
    elif vectors.dtype == np.uint8:
        vectors = of_nibbles(vectors)
    return arrays | {VECTORS: vectors, EVENTS: arrays[EVENTS].astype(np.int64)}


def of_nibbles(packed: Any) -> Any:
    """Unpack unit or zero vectors of four bits a number; the lower bits hold the first half of a vector."""
    steps = np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32) - np.float32(NIBBLE_MIDDLE)
    length = np.linalg.norm(steps, axis=-1, keepdims=True)
    return steps / np.maximum(length, 1)  # the shortest nonzero integer vector has length 1


def _trial_run(finder: PeopleFinder, files: BundleFiles, accounts: int) -> None:
    """Run the finder on two sessions, as a new and as a known account; raise an error if a result is not finite."""
    items, times = np.array([0, files.config["items"] - 1], dtype=np.int32), np.array([0, 9 * DAY])
    for row in (None, *range(min(accounts, 1))):
        try:
            with np.errstate(all="ignore"):
                people = finder.find(items, times, row=row)
            sound = bool(np.isfinite(people.share).all() and np.isfinite(people.chances).all())
        except (DataError, ValueError, IndexError) as problem:
            raise DataError(f"{files.folder / FINDER}: cannot find people: {problem}. {EXPORT_AGAIN}") from None
        need(sound, f"{files.folder / FINDER}", "finite chances", people.chances)
