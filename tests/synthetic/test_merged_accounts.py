"""Merging single users into households: nobody twice, nothing lost, time in order, ties at random."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from lightgc2n.cli.simulate import simulate as simulate_command
from lightgc2n.data.dataset import Dataset, Domain, load_dataset, write_dataset
from lightgc2n.data.members import load_members
from lightgc2n.errors import DataError, OutputError, SettingError
from lightgc2n.synthetic.merged_accounts import SimulateOptions, simulate

Log = list[tuple[int, int]]
TWO_DOMAINS = (Domain("food", 0, 3), Domain("kitchen", 3, 6))
JANUARY_2020, JANUARY_2021 = 1_577_836_800_000_000, 1_609_459_200_000_000  # first microsecond of the year, UTC


def written(folder: Path, logs: dict[str, Log], kind: str = "logs", with_times: bool = True) -> Dataset:
    """A dataset of `{user: [(item, time), ...]}` over the six items of two domains."""
    folder.mkdir()
    events = [event for log in logs.values() for event in log]
    write_dataset(
        folder,
        name="tiny",
        kind=kind,
        accounts=list(logs),
        items=[f"item {number}" for number in range(6)],
        domains=TWO_DOMAINS,
        offsets=np.cumsum([0] + [len(log) for log in logs.values()]),
        sequence_accounts=np.arange(len(logs)),
        events=np.array([item for item, _ in events], dtype=np.int32),
        times=np.array([time for _, time in events], dtype=np.int64) if with_times else None,
    )
    return load_dataset(folder)


def options(**changes: object) -> SimulateOptions:
    return SimulateOptions(**{"min_events": 1} | changes)


def rows(folder: Path) -> list[tuple[str, str, int, int]]:
    """All events as (account, member, item, time), in the order they stand."""
    data, members = load_dataset(folder), load_members(folder)
    assert members is not None
    accounts = np.repeat(data.sequence_accounts, data.lengths)
    everything = zip(accounts, members.of_event, data.events, data.times, strict=True)
    return [(data.accounts[a], members.names[m], int(item), int(time)) for a, m, item, time in everything]


def test_two_users_by_hand(tmp_path):
    ann, bob = [(0, 10), (1, 30), (2, 50)], [(3, 20), (4, 40)]
    simulate(written(tmp_path / "in", {"ann": ann, "bob": bob}), options(members="2"), tmp_path / "out")
    who, house = ["ann", "bob", "ann", "bob", "ann"], "household-00000"
    assert rows(tmp_path / "out") == [(house, who[i], item, 10 + 10 * i) for i, item in enumerate([0, 3, 1, 4, 2])]


@settings(max_examples=40, deadline=None)
@given(
    logs=st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=6), min_size=8, max_size=20),
    sizes=st.sampled_from(["1", "2", "1-4"]),
    seed=st.integers(0, 5),
)
def test_each_user_is_merged_once_and_no_event_is_lost(logs, sizes, seed):
    users = {f"user {number}": sorted([(0, 0), *log], key=lambda event: event[1]) for number, log in enumerate(logs)}
    with TemporaryDirectory() as folder:
        source = written(Path(folder) / "in", users)
        manifest = simulate(source, options(members=sizes, seed=seed), Path(folder) / "out")
        actual = rows(Path(folder) / "out")
        times = load_dataset(Path(folder) / "out").times
    households = {}
    for account, member, _, _ in actual:
        assert households.setdefault(member, account) == account
    for user in households:
        assert Counter((item, time) for _, member, item, time in actual if member == user) == Counter(users[user])
    smallest, largest = options(members=sizes).sizes
    assert all(smallest <= size <= largest for size in Counter(households.values()).values())
    assert len(users) - len(households) == manifest["counts"]["users_left_over"] < largest
    assert all(a[0] != b[0] or a[3] <= b[3] for a, b in pairwise(actual))
    assert sorted(times) == sorted(time for user in households for _, time in users[user])


def test_household_sizes_are_drawn_evenly(tmp_path):
    source = written(tmp_path / "in", {str(user): [(0, user)] for user in range(3000)})
    simulate(source, options(members="2-4"), tmp_path / "out")
    households = Counter(account for account, *_ in rows(tmp_path / "out"))
    sizes = Counter(households.values())
    assert set(sizes) == {2, 3, 4}
    assert all(abs(count / len(households) - 1 / 3) < 0.05 for count in sizes.values())


def test_ties_are_broken_at_random_and_differ_by_seed(tmp_path):
    same_day = {name: [(item, 7) for item in range(6)] * 20 for name in ("ann", "bob")}
    source = written(tmp_path / "in", same_day)
    orders = []
    for seed in (0, 1):
        simulate(source, options(members="2", seed=seed), tmp_path / f"out{seed}")
        orders.append([(member, item) for _, member, item, _ in rows(tmp_path / f"out{seed}")])
    assert orders[0] != orders[1]
    assert Counter(orders[0]) == Counter(orders[1])
    switches = [a[0] != b[0] for a, b in pairwise(orders[0])]
    assert 0.35 < np.mean(switches) < 0.65  # two equally busy people, mixed at random: one half
    anns = [item for member, item in orders[0] if member == "ann"]
    assert anns != [item for item, _ in same_day["ann"]]


def test_same_seed_same_bytes(tmp_path):
    source = written(tmp_path / "in", {str(user): [(user % 6, 5), (1, 5)] for user in range(20)})
    for out in ("a", "b"):
        simulate(source, options(seed=3), tmp_path / out)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert len(files) == 9
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


def test_fragments_by_year_by_hand(tmp_path):
    old, new = JANUARY_2021 - 1, JANUARY_2021  # the last microsecond of one year, the first of the next
    ann = [(0, JANUARY_2020), (3, old), (1, new)]
    bob = [(4, JANUARY_2020 + 1), (1, new + 1), (5, new + 2)]
    source = written(tmp_path / "in", {"ann": ann, "bob": bob})
    simulate(source, options(members="2", fragments="year"), tmp_path / "all")
    data = load_dataset(tmp_path / "all")
    assert (list(data.events), list(data.offsets)) == ([0, 4, 3, 1, 1, 5], [0, 3, 6])
    assert list(data.sequence_accounts) == [0, 0]
    # 2020 has one food event and two of kitchen, 2021 two and one: with two asked for in each domain nothing is left.
    with pytest.raises(DataError, match="0 accounts can be made"):
        simulate(source, options(members="2", fragments="year", min_events_per_domain=2), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_fragments_with_too_few_events_in_a_domain_are_dropped(tmp_path):
    ann = [(0, JANUARY_2020), (3, JANUARY_2020 + 1), (1, JANUARY_2021)]
    bob = [(1, JANUARY_2021 + 1)]
    source = written(tmp_path / "in", {"ann": ann, "bob": bob})
    chosen = options(members="2", fragments="year", min_events_per_domain=1)
    counts = simulate(source, chosen, tmp_path / "out")["counts"]
    assert [row[1:3] for row in rows(tmp_path / "out")] == [("ann", 0), ("ann", 3)]
    assert (counts["sequences_dropped"], counts["users_used"]) == (1, 1)


def test_without_fragments_whole_accounts_are_dropped(tmp_path):
    users = {"both": [(0, 1), (3, 2)], "food": [(0, 1), (1, 2)], "kitchen": [(4, 1), (5, 2)]}
    source = written(tmp_path / "in", users)
    manifest = simulate(source, options(members="1", min_events_per_domain=1), tmp_path / "out")
    assert {member for _, member, *_ in rows(tmp_path / "out")} == {"both"}
    assert manifest["counts"]["accounts"] == 1
    assert "Sequences dropped (fewer than 1 events in some domain): 2." in manifest["notes"]


def test_users_with_few_events_stay_out(tmp_path):
    users = {"one": [(0, 1)], "two": [(0, 1), (1, 2)], "three": [(0, 1), (1, 2), (2, 3)], "other": [(0, 1), (3, 2)]}
    manifest = simulate(written(tmp_path / "in", users), options(members="2", min_events=2), tmp_path / "out")
    assert "one" not in {member for _, member, *_ in rows(tmp_path / "out")}
    assert manifest["counts"]["users_with_too_few_events"] == manifest["counts"]["users_left_over"] == 1
    assert "Users with fewer than 2 events, not used: 1." in manifest["notes"]


def test_accounts_limits_how_many_come_out(tmp_path):
    source = written(tmp_path / "in", {str(user): [(0, user)] for user in range(30)})
    assert simulate(source, options(accounts=4), tmp_path / "out")["counts"]["accounts"] == 4
    with pytest.raises(DataError, match="31 are needed"):
        simulate(source, options(members="1", accounts=31), tmp_path / "more")


def test_manifest_says_how_it_was_made(tmp_path):
    source = written(tmp_path / "in", {"ann": [(0, 1)], "bob": [(1, 2)]})
    manifest = simulate(source, options(members="2", seed=5), tmp_path / "out")
    assert manifest["source"] == {"dataset": "tiny", "checksum": source.checksum}
    assert manifest["options"] == {
        "members": "2", "seed": 5, "min_events": 1, "accounts": 0, "fragments": "none", "min_events_per_domain": 0,
        "overlap": 0.0, "balanced": False,
    }  # fmt: skip
    data = load_dataset(tmp_path / "out")
    assert (list(data.items), data.domains) == (list(source.items), TWO_DOMAINS)


def test_what_cannot_be_merged_is_refused(tmp_path):
    users = {"ann": [(0, 1)], "bob": [(1, 2)]}
    with pytest.raises(DataError, match="no time for every event"):
        simulate(written(tmp_path / "timeless", users, with_times=False), options(), tmp_path / "out")
    with pytest.raises(DataError, match="holds windows, not logs"):
        simulate(written(tmp_path / "windows", users, kind="windows"), options(), tmp_path / "out")
    source = written(tmp_path / "in", users)
    with pytest.raises(DataError, match="needs 3"):
        simulate(source, options(members="3"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    simulate(source, options(members="2"), tmp_path / "out")
    with pytest.raises(DataError, match="have members already"):
        simulate(load_dataset(tmp_path / "out"), options(), tmp_path / "twice")
    with pytest.raises(OutputError, match="exists already"):
        simulate(source, options(members="2"), tmp_path / "out")
    simulate(source, options(members="2"), tmp_path / "out", force=True)


@pytest.mark.parametrize("text", ["", "0", "4-2", "two", "2-", "-2", "0-3", "2-3-4"])
def test_senseless_sizes_are_refused(text):
    with pytest.raises(SettingError, match="such as 2-4"):
        _ = options(members=text).sizes


def test_command(tmp_path):
    app = typer.Typer()
    app.command()(simulate_command)
    written(tmp_path / "in", {"ann": [(0, 1)], "bob": [(1, 2)]})
    arguments = [str(tmp_path / "in"), "--members", "2", "--min-events", "1", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(result.stdout)["counts"]["users_used"] == 2
    result = CliRunner().invoke(app, [*arguments, "--force"])
    assert "1 accounts of 2 users, 1 sequences, 2 events." in result.stdout
    result = CliRunner().invoke(app, [*arguments, "--force", "--fragments", "month"])
    assert isinstance(result.exception, SettingError)
