"""Each protocol keeps its promise, on logs that can be followed by eye and on any others."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgc2n.config import read_settings
from lightgc2n.data.dataset import Dataset, Domain
from lightgc2n.data.splits import UNSEEN, Queries, Split, SplitConfig, split_dataset
from lightgc2n.errors import DataError, SettingError
from tests.worlds import dataset_of


def config(**values: object) -> SplitConfig:
    return read_settings(SplitConfig, values, "test")


def names(data: Dataset, items: np.ndarray) -> str:
    return " ".join(data.items[item] for item in items)


def asked(data: Dataset, queries: Queries) -> dict[str, tuple[str, str]]:
    """account -> (what is shown, what is asked)."""
    return {
        data.accounts[queries.owner[row]]: (
            names(data, queries.events[queries.start[row] : queries.stop[row]]),
            data.items[queries.target[row]],
        )
        for row in range(len(queries))
    }


def training(data: Dataset, split: Split) -> list[tuple[str, str]]:
    train = split.train
    return [
        (
            data.accounts[train.sequence_accounts[row]],
            names(data, train.events[train.offsets[row] : train.offsets[row + 1]]),
        )
        for row in range(train.sequences)
    ]


def test_last_by_hand() -> None:
    data = dataset_of([("a", "p q r s"), ("b", "p q r"), ("c", "p q"), ("d", "p")])
    split = split_dataset(data, config())
    assert training(data, split) == [("a", "p q"), ("b", "p"), ("c", "p"), ("d", "p")]
    assert asked(data, split.validation) == {"a": ("p q", "r"), "b": ("p", "q")}
    assert asked(data, split.test) == {"a": ("p q r", "s"), "b": ("p q", "r"), "c": ("p", "q")}
    assert split.train.popularity.tolist() == [4, 1, 0, 0]
    assert split.stamps == ()


def test_last_takes_the_longest_of_several_lines() -> None:
    data = dataset_of([("a", "p q"), ("b", "x y z"), ("a", "r s t u"), ("a", "p p p p")])
    split = split_dataset(data, config())
    assert training(data, split) == [("a", "r s"), ("b", "x")]
    assert asked(data, split.test)["a"] == ("r s t", "u")
    assert "2 lines left out" in split.notes[0]


def test_fragments_with_times_are_one_log() -> None:
    data = dataset_of([("a", "p q"), ("a", "r s"), ("b", "x y z")], times=[[1, 2], [8, 9], [1, 2, 3]])
    split = split_dataset(data, config())
    assert asked(data, split.test)["a"] == ("p q r", "s")
    assert training(data, split)[0] == ("a", "p q")


def test_time_by_hand() -> None:
    """Ten events at the times 0 to 9; with a share of 0.2 the cuts lie at 8 and at 6."""
    data = dataset_of([("a", "p q r s"), ("b", "x y z"), ("c", "u v w")], times=[[0, 1, 6, 9], [2, 7, 8], [3, 4, 5]])
    split = split_dataset(data, config(protocol="time", test_share=0.2))
    assert training(data, split) == [("a", "p q"), ("b", "x"), ("c", "u v w")]
    assert asked(data, split.validation) == {"a": ("p q", "r"), "b": ("x", "y")}
    assert asked(data, split.test) == {"a": ("p q r", "s"), "b": ("x y", "z")}


def test_an_event_at_the_cut_lies_after_it() -> None:
    data = dataset_of([("a", "p q"), ("b", "x y z")], times=[[0, 5], [1, 5, 5]])
    split = split_dataset(data, config(protocol="time", test_share=0.4))
    assert asked(data, split.test) == {"a": ("p", "q"), "b": ("x", "y")}


def test_accounts_without_training_events_are_nameless() -> None:
    """b first acts between the cuts: its history is shown in the test, but no model has learned the account."""
    data = dataset_of([("a", "p q r s t u v"), ("b", "x y z")], times=[[0, 1, 2, 3, 4, 5, 9], [7, 8, 9]])
    split = split_dataset(data, config(protocol="time", test_share=0.2))
    by_owner = dict(zip(split.test.owner.tolist(), split.test.account.tolist(), strict=True))
    assert by_owner == {0: 0, 1: UNSEEN}


def test_cold_accounts_are_never_in_training() -> None:
    data = dataset_of([(f"a{number}", "p q r") for number in range(20)])
    split = split_dataset(data, config(protocol="cold-accounts", test_share=0.1, seed=3))
    held_out = set(split.test.owner.tolist()) | set(split.validation.owner.tolist())
    assert len(split.test) == len(split.validation) == 2
    assert held_out.isdisjoint(split.train.sequence_accounts.tolist())
    assert (split.test.account == UNSEEN).all()
    assert len(split.train.sequence_accounts) == 16
    assert (split.train.popularity == 16).all()  # whole logs, the last event included


def test_windows_are_drawn_whole() -> None:
    data = dataset_of([(f"a{number}", f"p q r{number}") for number in range(50)], kind="windows")
    split = split_dataset(data, config(protocol="windows"))
    assert (len(split.test), len(split.validation), split.train.sequences) == (10, 4, 36)
    assert split.train.targets == "last"
    assert len(split.stamps) == 1
    shown = asked(data, split.test)
    assert all(history == "p q" and target.startswith("r") for history, target in shown.values())


def test_windows_keep_the_parts_of_the_source() -> None:
    data = dataset_of([("a", "p q")] * 12 + [("b", "p r"), ("b", "r p")], kind="windows", parts=[0] * 12 + [1, 1])
    split = split_dataset(data, config(protocol="windows"))
    assert split.test.owner.tolist() == [1, 1]
    assert (split.train.sequences, len(split.validation)) == (11, 1)
    assert (split.test.account == UNSEEN).all()


COPIES = [
    ("a", "p q r s"),  # training
    ("a", "p q r"),  # validation, and inside the first
    ("a", "x y z"),
    ("a", "p q r s"),  # test: a copy
    ("a", "q r s"),  # inside
    ("a", "q s"),  # in the same order, but not in a row
    ("b", "q r s"),  # another account's
    ("a", "y z w"),  # overlaps, and its target is new
]


def test_windows_contained_in_a_training_window_can_be_left_out() -> None:
    data = dataset_of(COPIES, kind="windows", parts=[0, 0, 0, 1, 1, 1, 1, 1])
    kept, less = (split_dataset(data, config(protocol="windows", copies=copies)) for copies in (True, False))
    assert len(kept.test) == 5
    places = zip(less.test.start, less.test.stop, strict=True)
    actual = [names(data, data.events[start : stop + 1]) for start, stop in places]
    assert actual == ["q s", "q r s", "y z w"]
    assert less.test.owner.tolist() == [0, 1, 0]
    assert training(data, less) == training(data, kept)
    assert less.notes[-1].startswith("2 of 5 test windows")
    assert len(less.stamps) == 2


def test_a_validation_window_inside_a_training_window_chooses_nothing_and_hides_its_copy() -> None:
    """Whichever of the three alike is drawn for validation, it stands in another; so does the test window."""
    data = dataset_of([("a", "p q r")] * 3 + [("a", "q r"), ("a", "x y")], kind="windows", parts=[0, 0, 0, 1, 1])
    less = split_dataset(data, config(protocol="windows", copies=False))
    assert (len(less.validation), less.train.sequences) == (0, 2)
    assert names(data, less.test.target) == "y"


def test_logs_have_no_windows_to_leave_out() -> None:
    with pytest.raises(DataError, match=r"split\.copies=false is for windows"):
        split_dataset(dataset_of([("a", "p q r s")]), config(copies=False))


def test_shares_of_the_training_sequences_lie_in_one_another() -> None:
    logs = [(f"a{number}", f"p q r{number} s t") for number in range(20)]
    data = dataset_of(logs, times=[[number, 21, 22, 23, 24] for number in range(20)])
    whole = split_dataset(data, config())
    before: set[tuple[str, str]] = set()
    for share, count in ((0.2, 4), (0.55, 11), (1.0, 20)):
        split = split_dataset(data, config(training_share=share))
        actual = training(data, split)
        assert len(actual) == len(set(actual)) == count
        assert before < set(actual) <= set(training(data, whole))
        assert (data.events[split.train_events] == split.train.events).all()
        assert split.train.times is not None
        assert (np.asarray(data.times)[split.train_events] == split.train.times).all()
        assert asked(data, split.test) == asked(data, whole.test)
        known = {data.accounts[owner] for owner in split.test.owner[split.test.account != UNSEEN]}
        assert known == {account for account, _ in actual}
        before = set(actual)


def test_a_share_keeps_separate_targets() -> None:
    data = dataset_of([(f"a{number}", "p q r") for number in range(10)], kind="windows")
    domains = (Domain("E", 0, 2), Domain("V", 2, 3))
    targets = np.column_stack([np.arange(10) % 2, np.full(10, 2)]).astype(np.int32)
    data = replace(data, domains=domains, targets=targets)
    train = split_dataset(data, config(protocol="windows", training_share=0.5)).train
    assert train.domain_targets is not None
    assert (train.domain_targets == targets[train.sequence_accounts]).all()
    assert train.sequences == 4  # half of the 7 that are neither for the test nor for validation


def test_target_in_input_shows_the_answer_and_is_stamped() -> None:
    data = dataset_of([("a", "p q r s"), ("b", "p q r")])
    split = split_dataset(data, config(target_in_input=True))
    assert asked(data, split.test)["a"] == ("p q r s", "s")
    assert "TARGET IN INPUT" in split.stamps[-1]


def test_steps_of_training_do_not_cross_sequences() -> None:
    data = dataset_of([("a", "p q r s t"), ("b", "x y z")])
    before, after = split_dataset(data, config()).train.steps
    assert [names(data, before), names(data, after)] == ["p q", "q r"]


@pytest.mark.parametrize(
    ("data", "protocol", "message"),
    [
        (dataset_of([("a", "p q")], kind="windows"), "last", "Use protocol='windows'"),
        (dataset_of([("a", "p q")]), "windows", "holds logs"),
        (dataset_of([("a", "p q")]), "time", "needs times"),
        (dataset_of([("a", "p"), ("b", "q")]), "last", "no account to test"),
    ],
)
def test_refusals_name_the_way_out(data: Dataset, protocol: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        split_dataset(data, config(protocol=protocol))


def test_an_unknown_protocol_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingError, match="Did you mean 'last'"):
        config(protocol="lst")


LOGS = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=9), min_size=3, max_size=12)


@given(logs=LOGS, protocol=st.sampled_from(["last", "time", "cold-accounts"]), seed=st.integers(0, 3))
def test_honest_protocols_hold_for_any_logs(logs: list[list[int]], protocol: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    times = [sorted(random.integers(0, 20, size=len(log)).tolist()) for log in logs]
    data = dataset_of([(f"a{number}", " ".join(map(str, log))) for number, log in enumerate(logs)], times=times)
    try:
        split = split_dataset(data, config(protocol=protocol, seed=seed))
    except DataError:
        return  # too little to test anything, which is said
    learned = set(split.train_events.tolist())
    assert len(learned) == len(split.train_events)
    for queries in (split.validation, split.test):
        assert learned.isdisjoint(queries.target_event.tolist())
        assert (queries.start < queries.stop).all()
        assert (queries.stop <= queries.target_event).all()
        assert (data.events[queries.target_event] == queries.target).all()
        owner_of_event = np.repeat(data.sequence_accounts, data.lengths)
        assert (owner_of_event[queries.start] == queries.owner).all()
        assert (owner_of_event[queries.target_event] == queries.owner).all()
    assert set(split.test.target_event.tolist()).isdisjoint(split.validation.target_event.tolist())
    if protocol == "time" and len(split.test):
        assert data.times is not None
        cut = data.times[split.test.target_event].min()
        assert (data.times[split.train_events] < cut).all()
        for row in range(len(split.test)):
            assert (data.times[split.test.start[row] : split.test.stop[row]] < cut).all()


@pytest.mark.parametrize("protocol", ["last", "time", "cold-accounts", "windows"])
def test_without_validation_its_events_are_trained_on_and_the_test_stays(protocol: str) -> None:
    logs = [(f"a{number}", f"p q r s{number} t") for number in range(20)]
    times = [[number, number + 1, number + 20, number + 30, number + 40] for number in range(20)]
    data = dataset_of(logs, kind="windows" if protocol == "windows" else "logs", times=times)
    held = split_dataset(data, config(protocol=protocol))
    free = split_dataset(data, config(protocol=protocol, validation=False))
    assert asked(data, free.test) == asked(data, held.test)
    assert len(held.validation) > 0
    assert len(free.validation) == 0
    kept, added = set(held.train_events.tolist()), set(free.train_events.tolist())
    assert kept < added
    assert set(held.validation.target_event.tolist()) <= added
    assert added.isdisjoint(free.test.target_event.tolist())
