"""What a dataset holds, counted by hand; repeats also by a slow loop."""

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lightgc2n.cli.describe import describe
from lightgc2n.data.dataset import MICROSECONDS, Dataset, Domain, load_dataset, write_dataset
from lightgc2n.data.members import Members, load_members
from lightgc2n.data.statistics import column, domain_switches, repeat_rate_from_end, repeated_events, statistics
from lightgc2n.errors import DataError, OutputError

LETTERS, DIGITS = Domain("letters", 0, 3), Domain("digits", 3, 6)
HOUR = 3600 * MICROSECONDS


def dataset(sequences: list[list[int]], domains: tuple[Domain, ...] = (Domain("all items", 0, 6),), **more) -> Dataset:
    """Six items a b c 1 2 3; one account per sequence unless `sequence_accounts` says otherwise."""
    accounts = np.asarray(more.pop("sequence_accounts", range(len(sequences))), dtype=np.int32)
    return Dataset(
        manifest={"name": "tiny", "kind": more.pop("kind", "logs"), "checksum": "0" * 64, "notes": ["Made by hand."]},
        accounts=[f"account {number}" for number in range(more.pop("accounts", len(sequences)))],
        items=list("abc123"),
        domains=domains,
        offsets=np.cumsum([0] + [len(sequence) for sequence in sequences]),
        sequence_accounts=accounts,
        events=np.array([item for sequence in sequences for item in sequence], dtype=np.int32),
        **more,
    )


def test_sizes_and_lengths_by_hand():
    actual = column(dataset([[0, 1], [], [2], [0, 0, 1]], accounts=3, sequence_accounts=[0, 1, 2, 0]))
    assert (actual["accounts_with_events"], actual["accounts_with_one_event"]) == (2, 1)  # account 0 has two sequences
    assert (actual["sequences"], actual["events"]) == (3, 6)
    assert (actual["items_in_catalogue"], actual["items_that_occur"]) == (6, 3)
    assert actual["length"] == {"mean": 2.0, "median": 2.0, "p90": pytest.approx(2.8), "max": 3}
    assert actual["density"] == 3 / (2 * 3)  # pairs: account 0 with a and b, account 2 with c
    assert actual["time"] is actual["train_sequences"] is None


def test_repeats_by_hand():
    actual = column(dataset([[0, 1, 0, 0], [2, 1, 2], [5]]))
    assert actual["repeat_rate"] == 3 / 8  # the second and third a, the second c
    assert actual["immediate_repeat_rate"] == 1 / 8  # a a; the c that ends one sequence does not meet the next
    assert actual["repeat_rate_at_last"] == 2 / 2  # the sequence of one event cannot repeat and does not count


def test_an_item_at_the_edge_of_two_sequences_is_no_repeat():
    assert column(dataset([[0, 1], [1, 0]]))["immediate_repeat_rate"] == 0


@given(st.lists(st.lists(st.integers(0, 5), max_size=8), max_size=8))
def test_repeats_as_a_slow_loop_finds_them(sequences):
    slow = [item in sequence[:place] for sequence in sequences for place, item in enumerate(sequence)]
    assert repeated_events(dataset(sequences)).tolist() == slow


@given(st.lists(st.lists(st.integers(0, 5), max_size=8), max_size=8))
def test_repeats_from_the_end_as_a_slow_loop_finds_them(sequences):
    rates = repeat_rate_from_end(dataset(sequences), positions=4)
    for back in range(4):
        there = [
            sequence[-1 - back] in sequence[: len(sequence) - 1 - back]
            for sequence in sequences
            if len(sequence) > back
        ]
        np.testing.assert_allclose(rates[back], np.mean(there) if there else np.nan)


def test_popularity_by_hand():
    actual = column(dataset([[0] * 6 + [1] * 3 + [2]]))
    # Gini of 1, 3, 6: the mean |x - y| over all nine ordered pairs, (2·2 + 2·5 + 2·3) / 9, by twice the mean, 20 / 3.
    assert actual["popularity_gini"] == pytest.approx((20 / 9) / (20 / 3))
    assert actual["top_1_percent_share"] == actual["top_10_percent_share"] == 6 / 10  # one item at least
    assert column(dataset([[0, 1, 2, 3, 4, 5]]))["popularity_gini"] == pytest.approx(0)


def test_domain_switches_by_hand():
    actual = domain_switches(dataset([[0, 1, 3, 4, 5, 0], [3], [3, 2]], domains=(LETTERS, DIGITS)))
    assert actual["switch_rate"] == 3 / 6  # ab|123|a has two switches in five pairs, 1|c one in one
    assert actual["run_length"]["letters"] == {
        "runs": 3,
        "mean": 4 / 3,
        "median": 1.0,
        "p90": pytest.approx(1.8),
        "max": 2,
    }
    assert actual["run_length"]["digits"]["runs"] == 3
    assert actual["run_length"]["digits"]["max"] == 3


def test_times_by_hand():
    times = np.array([0, 0, HOUR, 2 * HOUR + 1, 5 * HOUR])
    actual = column(dataset([[0, 1, 2, 0], [1]], times=times))["time"]
    assert (actual["first"], actual["last"]) == ("1970-01-01T00:00:00Z", "1970-01-01T05:00:00Z")
    assert actual["days"] == 5 / 24
    assert actual["median_gap_seconds"] == 3600  # of 0 s, one hour, and a hair more than one hour
    assert actual["equal_stamp_rate"] == 1 / 3
    assert (actual["sessions"], actual["events_per_session"]) == (3, 5 / 3)  # an hour exactly does not end a session


def test_targets_apart_count_in_their_domain_and_in_all():
    data = dataset([[0, 3, 0], [4]], domains=(LETTERS, DIGITS), targets=np.array([[0, 5], [-1, 4]], dtype=np.int32))
    actual = statistics(data)
    assert (actual["domains"]["letters"]["events"], actual["domains"]["digits"]["events"]) == (3, 4)
    assert (actual["all"]["events"], actual["all"]["items_that_occur"]) == (7, 4)
    assert (actual["input"]["events"], actual["input"]["items_that_occur"]) == (4, 3)
    assert actual["domains"]["letters"]["repeat_rate_at_last"] == 1  # a a, then the target a
    assert actual["all"]["repeat_rate"] == 3 / 7  # a twice more, and 2 as its own target
    # Which of two targets came first is not known, so what needs their order is left open.
    assert actual["all"]["immediate_repeat_rate"] is actual["all"]["repeat_rate_at_last"] is None
    assert "Separately stored targets" in actual["counting"][0]


def test_parts_and_windows_are_named():
    data = dataset([[0], [1, 2], [3]], parts=np.array([0, 0, 1], dtype=np.uint8), kind="windows")
    actual = statistics(data)
    assert (actual["all"]["train_sequences"], actual["all"]["test_sequences"]) == (2, 1)
    assert "once per window" in actual["counting"][0]
    assert actual["notes"] == ["Made by hand."]
    assert actual["domains"]["all items"] == actual["all"]


def test_members_by_hand():
    data = dataset([[0, 1, 2, 3], [4, 5], [0]])
    members = Members(["ann", "bob", "cat"], np.array([0, 1, 1, 0, 2, 2, -1], dtype=np.int32))
    actual = statistics(data, members)["members"]
    assert (actual["members"], actual["events_with_known_member"]) == (3, 6)
    assert actual["accounts_by_members"] == {"1": 1, "2": 1}  # nobody knows who uses the third account
    assert actual["switch_rate"] == 2 / 4
    # Two events each of two people: a neighbour is the other one with chance 2/3, over three pairs; cat has one pair.
    assert actual["switch_rate_in_random_order"] == pytest.approx((3 * 2 / 3) / 4)
    assert actual["switches_relative_to_random"] == pytest.approx(1)


@pytest.mark.parametrize("sequences", [[], [[]]])
def test_nothing_gives_no_numbers_and_no_warning(sequences):
    actual = statistics(dataset(sequences, domains=(LETTERS, DIGITS)), Members([], np.array([], dtype=np.int32)))
    assert actual["all"]["events"] == 0
    assert actual["all"]["repeat_rate"] is actual["all"]["length"]["mean"] is actual["all"]["popularity_gini"] is None
    assert actual["switches"]["switch_rate"] is actual["members"]["switch_rate"] is None


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    folder = tmp_path / "prepared"
    folder.mkdir()
    write_dataset(
        folder,
        name="tiny [two]",
        kind="logs",
        accounts=["home"],
        items=list("abc123"),
        domains=(LETTERS, DIGITS),
        offsets=np.array([0, 1200]),
        sequence_accounts=np.array([0]),
        events=np.arange(1200) % 5,
        times=np.arange(1200) * HOUR,
        members=np.arange(1200) % 2,
        member_names=["ann", "bob"],
    )
    return folder


def run(*arguments: str, **more):
    app = typer.Typer()
    app.command()(describe)
    return CliRunner().invoke(app, list(arguments), **more)


def test_command_prints_tables_without_cutting_numbers(prepared):
    text = run(str(prepared), env={"COLUMNS": "20"}).stdout
    lines = {" ".join(line.split()) for line in text.splitlines()}
    assert {"events 720", "events 480", "events 1,200"} <= lines  # a part of the table for each column
    assert {"last event 1970-02-19T21:00:00Z", "last event 1970-02-19T23:00:00Z"} <= lines
    assert "accounts of household size 2 1" in lines
    assert text.startswith("tiny [two] (logs, 1 accounts in the vocabulary")


def test_command_prints_json(prepared):
    result = run(str(prepared), "--json")
    assert json.loads(result.stdout) == statistics(load_dataset(prepared), load_members(prepared))


def test_plots_are_written_whole_and_not_overwritten(prepared, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "plots"
    assert run(str(prepared), "--plots", str(out)).exit_code == 0
    pictures = sorted(out.glob("*.png"))
    assert [path.name for path in pictures] == ["lengths.png", "popularity.png", "repeats.png", "times.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000 for path in pictures)
    assert json.loads((out / "statistics.json").read_text(encoding="utf-8"))["all"]["events"] == 1200
    assert isinstance(run(str(prepared), "--plots", str(out)).exception, OutputError)
    assert run(str(prepared), "--plots", str(out), "--force").exit_code == 0


@pytest.mark.parametrize("sequences", [[[0]], [[0, 1, 2]] * 3])
def test_little_data_gives_plots_too(sequences, tmp_path):
    pytest.importorskip("matplotlib")
    from lightgc2n.data.dataset_plots import write_plots

    data = dataset(sequences, domains=(LETTERS, DIGITS), times=np.zeros(sum(map(len, sequences)), dtype=np.int64))
    assert "times.png" in write_plots(data, statistics(data), tmp_path / "plots")
    with pytest.raises(DataError, match="nothing to plot"):
        write_plots(dataset([[]]), {}, tmp_path / "none")


def test_calendar_by_hand():
    pytest.importorskip("matplotlib")
    from lightgc2n.data.dataset_plots import _calendar

    thursday, friday_noon = 0, 36 * HOUR  # the first of January 1970 was a Thursday
    cells, labels, unit = _calendar(np.array([thursday, friday_noon, friday_noon, friday_noon]))
    assert (cells[3, 0], cells[4, 12], unit) == (25, 75, "hour (UTC)")
    cells, labels, _ = _calendar(np.array([thursday, thursday + 24 * 31 * HOUR]))  # whole days: Thursday, Sunday
    assert (cells[3, labels.index("Jan")], cells[6, labels.index("Feb")]) == (50, 50)
