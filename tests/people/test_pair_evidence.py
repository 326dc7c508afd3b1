"""People by contrast: features by hand, tables that never see the account itself, and a world where it counts."""

from dataclasses import replace

import numpy as np
import pytest

from lightgc2n.metrics.cluster_agreement import measure_people
from lightgc2n.people.contrast_method import by_contrast
from lightgc2n.people.count_people import plain_head
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.people.pair_evidence import (
    distance_in_time,
    evidence,
    gradients,
    learn,
    learn_contrast,
    log_ratio,
    outputs,
    pairs_across,
    pairs_inside,
    pairs_of_a_time,
    share_of_any_time,
)
from lightgc2n.people.reference_methods import REFERENCE_METHODS
from lightgc2n.people.session_features import (
    FOLDS,
    Sessions,
    describe,
    item_tables,
    item_vectors,
    pair_features,
    share_an_item,
)
from lightgc2n.people.sessions import DAY, HOUR, Logs, usual_gap
from tests.people.accounts import logs_of

ITEMS = 64


def world(accounts: int = 40, seed: int = 0) -> tuple[Logs, np.ndarray]:
    """Accounts of two strangers; each has a taste, one of eight, kept to half the time, and hours of their own."""
    random = np.random.default_rng(seed)
    items, times, who = [], [], []
    for _ in range(accounts):
        taste, hour = random.permutation(8)[:2], random.choice([3, 9, 15, 21], 2, replace=False)
        person = random.integers(2, size=30)
        own = taste[person] * 8 + random.integers(8, size=30)
        items.append(np.where(random.random(30) < 0.5, own, random.integers(ITEMS, size=30)).tolist())
        clock = (hour[person] + random.uniform(-5, 5, 30)) * HOUR
        times.append((np.sort(random.permutation(200)[:30]) * DAY + clock.astype(np.int64)).tolist())
        who.append(person)
    return logs_of(items, np.zeros((ITEMS, 4)), times), np.concatenate(who)


def shared(logs: Logs, found: np.ndarray, who: np.ndarray) -> float:
    people = np.full(logs.accounts, 2)
    return float(np.mean(measure_people(found, who, logs.account, people).columns["ARI"]))


def with_vectors(logs: Logs) -> Logs:
    return replace(logs, vectors=item_vectors(logs.account, logs.items, ITEMS))


def told(logs: Logs, count: np.ndarray) -> np.ndarray:
    """Return the person of each event, learned from the logs' training, the count given."""
    training, random = logs.training or logs, np.random.default_rng(0)
    gap = None if training.times is None else usual_gap(training.times)
    finder = PeopleFinder(learn(training, random), plain_head(), gap)
    return np.asarray(by_contrast(logs, count, random, finder=finder))


def test_it_beats_k_means_where_strangers_share_accounts() -> None:
    logs, who = world()
    logs, count = with_vectors(logs), np.full(logs.accounts, 2)
    contrast = shared(logs, told(logs, count), who)
    floor = shared(logs, REFERENCE_METHODS["session-k-means"].find(logs, count, np.random.default_rng(0)), who)
    hours = shared(logs, REFERENCE_METHODS["session-k-means-hours"].find(logs, count, np.random.default_rng(0)), who)
    assert contrast > max(0.5, 2 * floor)
    assert contrast > hours


def two_sessions() -> tuple[Logs, Sessions]:
    """Two sessions of an account, described by another's log: 6 in the morning of a Thursday, noon a week on."""
    logs = logs_of([[0, 1], [1], [0, 0, 2]], np.zeros((4, 4)), [[6 * HOUR, 6 * HOUR], [7 * DAY + 12 * HOUR], [0, 0, 0]])
    logs = replace(logs, offsets=np.array([0, 3, 6]))
    assert logs.times is not None
    logs.times[3:] = [-2 * DAY, 2 * DAY, 0]
    return logs, describe(logs, item_tables(logs, np.array([0, 1])), np.array([0, 1]))


def test_traits_of_a_session_by_hand() -> None:
    _, sessions = two_sessions()
    # Item 0 was seen twice by the other account, first on day -2, on day 0 in the mean; item 1 never.
    first = [np.log(3) / 2, np.log(1 + 2.25) / 2, 0.25 / 2, np.log(2), 0.25, 0, 1, -1, 0, 0]
    second = [0, 0, 0, 0, 7.5, -1, 0, 1, 0, 0]
    assert sessions.traits[:2] == pytest.approx(np.array([first, second]), abs=1e-6)
    assert sessions.owner[:2].tolist() == [0, 0]
    assert sessions.size[:2].tolist() == [2, 1]


def test_features_of_a_pair_by_hand() -> None:
    _, sessions = two_sessions()
    taste, traits = np.array([[0.6, 0.8], [0.0, 0.5]]), np.array([[1.0, -2.0], [3.0, 0.5]])
    sessions = replace(sessions, taste=taste, traits=traits)
    found = pair_features(sessions, np.array([0, 1]), np.array([1, 0]))
    # Apart, product and sum of both traits; 0.8 * 0.5; the cosine; item 1 is in both; 7.25 days apart; both Thursdays.
    expected = [2, 2.5, 3, -1, 4, -1.5, 0.4, 0.8, 1, np.log(7.25 + 0.02), 1]
    assert found == pytest.approx(np.array([expected, expected]))


def test_without_dates_a_pair_is_described_by_what_is_left() -> None:
    _, sessions = two_sessions()
    pair = np.array([0]), np.array([1])
    dated, plain = pair_features(sessions, *pair)[0], pair_features(sessions.without_dates(), *pair)[0]
    assert len(plain) == len(dated) - 2  # days between them, and the day of the week
    for block in range(3):  # of distances, products and sums of ten traits
        kept = [block * 10 + trait for trait in (0, 3, 5, 6, 7, 8, 9)]
        assert plain[kept].tolist() == dated[kept].tolist()
        assert not plain[[block * 10 + trait for trait in (1, 2, 4)]].any()


def test_shared_items_by_a_loop() -> None:
    random = np.random.default_rng(0)
    logs = logs_of(random.integers(9, size=(5, 12)).tolist(), np.zeros((9, 4)), [[0, 0, *range(0, 10 * DAY, DAY)]] * 5)
    sessions = describe(logs, item_tables(logs, np.arange(5) % FOLDS), np.arange(5) % FOLDS)
    one, other = random.integers(len(sessions.owner), size=(2, 60))
    held = [set(logs.items[logs.session == number].tolist()) for number in range(len(sessions.owner))]
    expected = [bool(held[a] & held[b]) for a, b in zip(one, other, strict=True)]
    assert share_an_item(sessions, one, other).tolist() == expected
    assert 0 < sum(expected) < 60


def test_what_comes_again_by_a_loop() -> None:
    logs, _ = world()
    sessions = describe(logs, item_tables(logs, np.arange(logs.accounts) % FOLDS), np.arange(logs.accounts) % FOLDS)
    held = [sorted(set(logs.items[logs.session == number].tolist())) for number in range(len(sessions.owner))]
    for places in ([0], [2, 5, 3], list(range(len(held)))):
        seen: set[int] = set()
        again = total = 0
        for item in (item for place in places for item in held[place]):
            again, total = again + (item in seen), total + 1
            seen.add(item)
        assert sessions.again(np.array(places)) == pytest.approx(again / total)


def test_an_account_is_described_by_others_alone() -> None:
    logs, _ = world(8)
    fold = np.arange(8) % FOLDS
    changed = replace(logs, items=np.where(fold[logs.account] == 0, 5, logs.items).astype(np.int32))
    before, after = item_tables(logs, fold), item_tables(changed, fold)
    for name in ("vectors", "events", "first", "middle"):
        assert np.array_equal(getattr(before, name)[0], getattr(after, name)[0])
        assert not np.array_equal(getattr(before, name)[1], getattr(after, name)[1])


def test_pairs_are_what_they_are_called() -> None:
    random = np.random.default_rng(0)
    logs = logs_of([[0] * 3, [1] * 40, [2], *[[3] * 10] * 9], np.zeros((4, 4)))
    fold = np.arange(12) % FOLDS
    sessions = describe(logs, item_tables(logs, fold), fold)
    one, other = pairs_inside(sessions, 1000, random)
    assert (sessions.owner[one] == sessions.owner[other]).all()
    assert (one != other).all()
    share = np.bincount(sessions.owner[one], minlength=12) / len(one)
    assert share == pytest.approx([1 / 11, 1 / 11, 0, *[1 / 11] * 9], abs=0.03)  # one session makes no pair
    one, other = pairs_across(sessions, fold, None, 1000, random)
    assert (sessions.owner[one] != sessions.owner[other]).all()
    assert np.array_equal(fold[sessions.owner[one]], fold[sessions.owner[other]])


def test_no_pair_across_is_nearer_than_sessions_of_one_account() -> None:
    logs, _ = world(12)
    fold = np.arange(12) % FOLDS
    sessions = describe(logs, item_tables(logs, fold), fold)
    assert sessions.begun is not None
    for gap in (0.0, 20.0):
        one, other = pairs_across(sessions, fold, gap, 2000, np.random.default_rng(0))
        assert len(one) > 500
        assert (np.abs(sessions.begun[one] - sessions.begun[other]) > gap).all()


def test_strangers_of_a_time_are_of_other_accounts_and_of_about_the_same_days() -> None:
    logs, _ = world(40)
    fold = np.arange(40) % FOLDS
    sessions = describe(logs, item_tables(logs, fold), fold)
    assert sessions.begun is not None
    random = np.random.default_rng(0)
    inside = pairs_inside(sessions, 2000, random)
    one, other = pairs_of_a_time(sessions, fold, 0.0, inside, random)
    assert len(one) > 1500
    assert (sessions.owner[one] != sessions.owner[other]).all()
    assert np.array_equal(fold[sessions.owner[one]], fold[sessions.owner[other]])
    apart, wanted = (np.abs(sessions.begun[a] - sessions.begun[b]).mean() for a, b in ((one, other), inside))
    anywhere = pairs_across(sessions, fold, 0.0, 2000, random)
    assert (
        abs(apart - wanted)
        < 0.2 * abs(np.abs(sessions.begun[anywhere[0]] - sessions.begun[anywhere[1]]).mean() - wanted) + 1
    )


def test_distance_in_time_by_hand() -> None:
    # After day 2 the first half has begun two of its three sessions, the other one of two.
    half = np.array([True, True, False, True, False])
    assert distance_in_time(np.array([1.0, 2.0, 2.0, 5.0, 9.0]), half) == pytest.approx(1 - 1 / 2)
    assert distance_in_time(np.array([1.0, 2.0, 7.0, 5.0, 9.0]), half) == 1


def test_whether_dates_tell_people_apart_is_seen_in_the_logs() -> None:
    """Evidence that knows the people: those of one half come before those of the other, or are there all the time."""
    logs, who = world(40)
    fold = np.arange(40) % FOLDS
    sessions = describe(logs, item_tables(logs, fold), fold)
    assert sessions.begun is not None
    together = who[sessions.first]
    first = np.arange(len(together)) % 30 < 15
    for people, share in ((together, 0.0), (first, 1.0)):

        def compare(places: np.ndarray, people: np.ndarray = people) -> np.ndarray:
            own = people[places]
            return np.where(own[..., :, None] == own[..., None, :], 2.0, -2.0) * (1 - np.eye(places.shape[-1]))

        assert share_of_any_time(sessions, compare, np.random.default_rng(0)) == share


def test_evidence_is_of_the_pair_and_symmetric(monkeypatch: pytest.MonkeyPatch) -> None:
    logs, who = world(12)
    learned = learn(logs, np.random.default_rng(0))
    sessions = learned.described(logs, learned.fold)
    whole = evidence(sessions, learned.contrast, np.arange(30, 60))
    assert np.array_equal(whole, whole.T)
    assert not whole.diagonal().any()
    monkeypatch.setattr("lightgc2n.people.pair_evidence.PAIRS_AT_ONCE", 7)
    assert evidence(sessions, learned.contrast, np.arange(30, 60)) == pytest.approx(whole, abs=1e-5)
    same = who[30:60, None] == who[30:60]
    assert whole[same].mean() > whole[~same].mean()


def asked(logs: Logs, rows: list[int]) -> Logs:
    """Some accounts of the logs, in this order, and the logs to learn from."""
    places = np.concatenate([np.arange(logs.offsets[row], logs.offsets[row + 1]) for row in rows])
    offsets = np.concatenate([[0], np.cumsum(np.diff(logs.offsets)[rows])])
    times = None if logs.times is None else logs.times[places]
    return Logs(offsets, logs.items[places], times, logs.vectors, training=logs, row=np.array(rows))


def test_neither_the_order_of_accounts_nor_the_others_asked_change_an_answer() -> None:
    logs, _ = world(10)

    def people(rows: list[int]) -> list[np.ndarray]:
        found = told(asked(logs, rows), np.full(len(rows), 2))
        return np.split(found, len(rows))

    every = people(list(range(10)))
    for place, row in enumerate([7, 2, 9]):
        assert np.array_equal(people([7, 2, 9])[place], every[row])
        assert np.array_equal(people([row])[0], every[row])


def test_without_times_tastes_are_told_apart() -> None:
    random = np.random.default_rng(0)
    who = random.integers(2, size=(60, 24))
    taste = np.stack([random.permutation(4)[:2] for _ in range(60)])
    items = np.take_along_axis(taste, who, axis=1) * 12 + random.integers(12, size=who.shape)
    logs = logs_of(items.tolist(), np.zeros((48, 4)))
    found = told(logs, np.full(60, 2))
    assert shared(logs, found, who.ravel()) > 0.8


@pytest.mark.parametrize("times", [[[0]], None])
def test_one_event_is_one_person(times: list[list[int]] | None) -> None:
    found = told(logs_of([[0]], np.zeros((1, 4)), times), np.array([1]))
    assert found.tolist() == [0]


def test_an_account_of_one_session_beside_others() -> None:
    logs, who = world(24)
    assert logs.times is not None
    items, times = np.append(logs.items, [0, 1]).astype(np.int32), np.append(logs.times, [0, 1])
    logs = replace(logs, offsets=np.append(logs.offsets, len(items)), items=items, times=times)
    found = told(logs, np.full(25, 2))
    assert found[-2:].tolist() == [0, 0]
    assert shared(logs, found, np.append(who, [0, 0])) > 0.3


def test_the_ratio_by_hand() -> None:
    # Half the pairs of an account are one person's, 5 times as likely as strangers': odds (5 + 1) / 2 = 3.
    assert log_ratio(np.log([3.0]))[0] == pytest.approx(np.log(5))
    assert log_ratio(np.log([1.0]))[0] == pytest.approx(0)
    # A quarter are, and these are 9 times as likely: odds (9 + 3) / 4 = 3.
    assert log_ratio(np.log([3.0]), share=0.25)[0] == pytest.approx(np.log(9))
    assert log_ratio(np.log([0.1]))[0] == pytest.approx(np.log(0.02))  # as small as it gets


def test_outputs_by_hand() -> None:
    weights = (np.array([[1.0], [0.0]]), np.array([0.5]), np.array([2.0]), np.array([0.0, 3.0]), np.array([-1.0]))
    log_odds, hidden = outputs(np.array([[0.5, 2.0]]), weights)
    assert hidden[0, 0] == pytest.approx(np.tanh(1.0))
    assert log_odds[0] == pytest.approx(2 * np.tanh(1.0) + 6 - 1)


def test_slopes_are_those_of_the_loss() -> None:
    random = np.random.default_rng(0)
    rows, target = random.normal(size=(7, 3)), random.integers(2, size=7).astype(np.float64)
    weights = tuple(random.normal(size=shape) for shape in ((3, 4), 4, 4, 3, 1))

    def loss() -> float:
        chance = 1 / (1 + np.exp(-outputs(rows, weights)[0]))
        return float(-np.log(np.where(target == 1, chance, 1 - chance)).mean())

    for part, slope in zip(weights, gradients(rows, target, weights), strict=True):
        for place in np.ndindex(part.shape):
            plain = part[place]
            part[place] = plain + 1e-6
            above = loss()
            part[place] = plain - 1e-6
            below = loss()
            part[place] = plain
            assert slope[place] == pytest.approx((above - below) / 2e-6, abs=1e-7)


def test_known_odds_are_learned_whatever_the_share_of_pairs() -> None:
    # One feature, 1 in 60 % of the pairs of an account and in 20 % of the others: odds 3 and 1/2.
    random = np.random.default_rng(0)
    target = (np.arange(40_000) % 4 == 0).astype(np.float64)
    seen = (random.random(40_000) < np.where(target == 1, 0.6, 0.2)).astype(np.float64)
    contrast = learn_contrast(seen[:, None], target, random)
    assert np.exp(contrast.log_odds(np.array([[1.0], [0.0]]))) == pytest.approx([3, 0.5], rel=0.08)


def test_what_never_changed_says_nothing() -> None:
    random = np.random.default_rng(0)
    rows = np.column_stack([random.normal(size=400), np.full(400, 2.0)])
    contrast = learn_contrast(rows, np.arange(400) % 2.0, random)
    first, second = contrast.log_odds(np.array([[0.5, 2.0], [0.5, 9.0]]))
    assert first == second


def test_the_same_seed_learns_the_same() -> None:
    rows, target = np.random.default_rng(0).normal(size=(500, 3)), np.arange(500) % 2.0
    first, second = (learn_contrast(rows, target, np.random.default_rng(5)).log_odds(rows) for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("target", [np.ones(3), np.zeros(3), np.zeros(0)])
def test_without_both_kinds_it_says_nothing(target: np.ndarray) -> None:
    contrast = learn_contrast(np.ones((len(target), 2)), target, np.random.default_rng(0))
    assert contrast.log_odds(np.array([[1.0, 5.0]])).tolist() == [0]
