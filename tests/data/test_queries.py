"""One question for each domain: by hand, and that nothing later than the cut is ever shown or learned."""

from dataclasses import replace

import numpy as np
import pytest

from lightgc2n.data.dataset import Dataset, Domain
from lightgc2n.data.leak_audit import audit_split
from lightgc2n.data.splits import UNSEEN, Queries, SplitConfig, split_dataset
from lightgc2n.errors import DataError
from tests.worlds import dataset_of

DOMAINS = (Domain("E", 0, 3), Domain("V", 3, 6))


def two_domains(*logs: tuple[str, str], times: list[list[int]] | None = None) -> Dataset:
    """Logs of the items a b c (domain E) and x y z (domain V)."""
    return replace(dataset_of(logs, items="a b c x y z", times=times), domains=DOMAINS)


def apart(*logs: tuple[str, str, str], kind: str = "logs") -> Dataset:
    """Logs whose targets, as "E-item V-item" or "-" for none, stand apart."""
    data = replace(dataset_of([log[:2] for log in logs], items="a b c x y z", kind=kind), domains=DOMAINS)
    targets = [[data.item_index.get(name, -1) for name in log[2].split()] for log in logs]
    return replace(data, targets=np.array(targets, dtype=np.int32))


def asked(data: Dataset, queries: Queries) -> list[tuple[str, str, str]]:
    """Account, what is shown, and the target."""
    names = np.array(data.items)
    return [
        (data.accounts[owner], " ".join(names[queries.events[start:stop]]), str(names[target]))
        for owner, start, stop, target in zip(queries.owner, queries.start, queries.stop, queries.target, strict=True)
    ]


def test_separate_targets() -> None:
    data = apart(("p", "a x b", "c y"), ("q", "x y", "a -"))
    split = split_dataset(data, SplitConfig())
    assert asked(data, split.test) == [("p", "a x b", "c"), ("p", "a x b", "y"), ("q", "x y", "a")]
    assert asked(data, split.validation) == [("p", "a x", "b"), ("q", "x", "y")]
    assert [data.items[item] for item in split.train.events] == ["a", "x", "x"]
    assert split.by_domain
    assert split.catalogues == DOMAINS


def test_the_latest_cut_before_an_event_of_each_domain() -> None:
    data = two_domains(("p", "a b x y c z"), ("q", "x y z"), ("r", "a x"))
    split = split_dataset(data, SplitConfig(ask="each-domain"))
    # p ends with c (E) and z (V): both stand behind the cut. q has V alone. r has nothing before its cut.
    assert asked(data, split.test) == [("p", "a b x y", "c"), ("p", "a b x y", "z"), ("q", "x y", "z")]
    assert asked(data, split.validation) == [("p", "a b x", "y"), ("q", "x", "y")]


def test_what_follows_the_first_of_each_domain_is_not_used() -> None:
    data = two_domains(("p", "a x b y z x"))
    split = split_dataset(data, SplitConfig(ask="each-domain"))
    # The last E is b: the cut lies before it, and the first V behind it is y; z and x are later than both.
    assert asked(data, split.test) == [("p", "a x", "b"), ("p", "a x", "y")]
    assert len(split.train.events) == 1


def test_one_cut_in_time() -> None:
    times = [[0, 1, 2, 8, 9], [0, 1, 2, 3, 4]]
    data = two_domains(("p", "a x b y c"), ("q", "a b a b a"), times=times)
    split = split_dataset(data, SplitConfig(protocol="time", ask="each-domain", test_share=0.2))
    assert asked(data, split.test) == [("p", "a x b", "y"), ("p", "a x b", "c")]
    assert not audit_split(data, split).leaks


def test_cold_accounts_are_nameless_for_every_domain() -> None:
    data = two_domains(*[(f"p{number}", "a x b y") for number in range(20)])
    split = split_dataset(data, SplitConfig(protocol="cold-accounts", ask="each-domain"))
    assert len(split.test) == 4
    assert (split.test.account == UNSEEN).all()
    assert set(split.test.owner.tolist()).isdisjoint(split.train.sequence_accounts.tolist())


def test_windows_keep_the_targets_that_they_are_given() -> None:
    data = apart(*[(f"p{number}", "a x b", "c y") for number in range(20)], kind="windows")
    split = split_dataset(data, SplitConfig(protocol="windows"))
    assert split.train.domain_targets is not None
    assert split.train.domain_targets.tolist() == [[2, 4]] * split.train.sequences
    assert len(split.test) == 2 * 4
    assert len(split.stamps) == 1


@pytest.mark.parametrize("protocol", ["last", "cold-accounts"])
def test_nothing_leaks(protocol: str) -> None:
    random = np.random.default_rng(0)
    logs = [(f"p{number}", " ".join(random.choice(list("abcxyz"), size=9))) for number in range(40)]
    data = two_domains(*logs)
    split = split_dataset(data, SplitConfig(protocol=protocol, ask="each-domain"))
    trained = set(split.train_events.tolist())
    for queries in (split.test, split.validation):
        assert trained.isdisjoint(queries.target_event.tolist())
        assert (queries.stop <= queries.target_event).all()
    actual = audit_split(data, split)
    assert actual["test_events"].count == actual["target_in_input"].count == 0


def test_invalid_options_are_errors() -> None:
    with pytest.raises(DataError, match="needs two domains"):
        split_dataset(dataset_of([("a", "p q r")]), SplitConfig(ask="each-domain"))
    with pytest.raises(DataError, match="one target for each domain"):
        split_dataset(apart(("p", "a x b", "c y")), SplitConfig(ask="next"))
    with pytest.raises(DataError, match="not possible with one target"):
        split_dataset(apart(("p", "a x b", "c y")), SplitConfig(target_in_input=True))
