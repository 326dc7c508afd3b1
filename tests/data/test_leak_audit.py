"""What leaks and what does not, on rows small enough to check by eye; "inside" also by a slow loop."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lightgc2n.cli.audit import audit as audit_command
from lightgc2n.data.dataset import TEST_PART, TRAIN_PART, Dataset, Domain, load_dataset, write_dataset
from lightgc2n.data.leak_audit import Audit, Finding, audit_files, audit_split
from lightgc2n.data.splits import Split, SplitConfig, split_dataset
from lightgc2n.data.subsequences import Rows, contained_in
from lightgc2n.errors import DataError, LightGC2NError, SettingError

Sequence = tuple[int, list[int]]  # account, items
HOST = (0, [0, 1, 2, 3, 4])
app = typer.Typer(pretty_exceptions_enable=False)
app.command()(audit_command)


def written(folder: Path, sequences: list[Sequence], kind: str = "logs", **more) -> Dataset:
    """A dataset of ten items; accounts as many as the sequences name."""
    folder.mkdir()
    write_dataset(
        folder,
        name="tiny",
        kind=kind,
        accounts=[f"account {number}" for number in range(1 + max(account for account, _ in sequences))],
        items=[f"item {number}" for number in range(10)],
        domains=(Domain("all", 0, 10),),
        offsets=np.cumsum([0] + [len(items) for _, items in sequences]),
        sequence_accounts=np.array([account for account, _ in sequences]),
        events=np.array([item for _, items in sequences for item in items]),
        **more,
    )
    return load_dataset(folder)


def windows(folder: Path, train: list[Sequence], test: list[Sequence]) -> Audit:
    """The audit of windows that are already divided; one of the training windows becomes validation."""
    parts = np.array([TRAIN_PART] * len(train) + [TEST_PART] * len(test))
    return audited(written(folder, train + test, "windows", parts=parts), protocol="windows")


def audited(dataset: Dataset, **config) -> Audit:
    return audit_split(dataset, split_dataset(dataset, SplitConfig(**config)))


def counts(actual: Audit, *names: str) -> list[int | None]:
    return [actual[name].count for name in names]


def rows(sequences: list[Sequence]) -> Rows:
    bounds = np.cumsum([0] + [len(items) for _, items in sequences])
    events = np.array([item for _, items in sequences for item in items], dtype=np.int32)
    return Rows(np.array([account for account, _ in sequences], dtype=np.int64), bounds[:-1], bounds[1:], events)


@pytest.mark.parametrize(
    ("test", "copies", "inside", "tail", "step", "target"),
    [
        ((0, [0, 1, 2, 3, 4]), 1, 1, 1, 1, 1),  # the whole window
        ((0, [1, 2, 3]), 0, 1, 1, 1, 1),  # a piece of it
        ((0, [9, 1, 2, 3, 4]), 0, 0, 1, 1, 1),  # begins elsewhere, its last four events are there
        ((0, [9, 2, 3, 4]), 0, 0, 0, 1, 1),  # its last three events are there
        ((0, [2, 9, 3, 4]), 0, 0, 0, 1, 1),  # only the last step is there
        ((0, [0, 2, 4]), 0, 0, 0, 0, 1),  # in order but not in a row
        ((0, [1, 2, 9]), 0, 0, 0, 0, 0),  # the target is not there
        ((1, [1, 2, 3]), 0, 0, 0, 0, 0),  # the window is another account's
    ],
)
def test_windows_by_hand(test, copies, inside, tail, step, target, tmp_path):
    actual = windows(tmp_path / "data", [HOST, (0, [5, 6, 7])], [test])
    assert counts(actual, "copies", "inside", "tail", "step", "target") == [copies, inside, tail, step, target]
    assert actual.leaks == bool(tail)  # a lone step or item may be a habit
    assert [actual[name].role for name in ("copies", "inside", "tail", "step", "target")] == ["leak"] * 3 + [
        "evidence"
    ] * 2


def test_a_run_over_two_training_windows_is_not_inside_one(tmp_path):
    actual = windows(tmp_path / "data", [HOST, (0, [5, 6, 7])], [(0, [3, 4, 5, 6])])
    assert counts(actual, "inside", "step", "target") == [0, 1, 1]  # 5 6 stands in the second window, 4 5 in none


def test_windows_kept_for_validation_count_as_training(tmp_path):
    train = [HOST, (0, [5, 6, 7])]  # whichever of the two is drawn for validation
    assert counts(windows(tmp_path / "data", train, [HOST, (0, [5, 6, 7])]), "copies") == [2]


def test_sliding_windows_of_one_length_leak_though_none_is_inside_another(tmp_path):
    log = [0, 1, 2, 3, 4, 5, 6, 7]
    actual = windows(tmp_path / "data", [(0, log[0:6]), (0, log[2:8])], [(0, log[1:7])])
    assert counts(actual, "copies", "inside", "tail") == [0, 0, 1]  # 3 4 5 6 stands in the window behind it
    assert actual.verdict.startswith("Leaks: 100.0 % of the test windows end inside a training window")


def test_the_verdict_names_every_leak_once(tmp_path):
    actual = windows(tmp_path / "data", [HOST, (1, [5, 6, 7])], [HOST, (0, [1, 2, 3]), (1, [9, 8]), (1, [7, 9])])
    assert actual.verdict == (
        "Leaks: 25.0 % of the test windows are copies of a training window of the same account, 50.0 % lie inside one "
        "and 50.0 % end inside one; scores on this split measure memory, not foresight."
    )


def test_logs_repeat_by_habit_and_do_not_leak(tmp_path):
    actual = audited(written(tmp_path / "data", [(0, [0, 1, 2, 3, 0, 1, 2, 3, 9, 0, 1, 2, 3]), (1, [4, 5, 4, 5])]))
    assert counts(actual, "test_events", "validation_events", "copies", "inside") == [0, 0, 0, 0]
    # 0 1 2 3 stands in the first log before; of 4 5 4 5 training has only 4 5, so the step 4 5 is known and no more.
    assert counts(actual, "tail", "step", "target") == [1, 2, 2]
    assert actual["tail"].role == actual["step"].role == actual["target"].role == "habit"
    assert not actual.leaks
    assert actual.verdict == "No leak found: no test target or test log is in the training data."


@pytest.mark.parametrize("protocol", ["last", "cold-accounts"])
def test_a_target_left_in_the_input_leaks(protocol, tmp_path):
    data = written(tmp_path / "data", [(account, [0, 1, 2, 3]) for account in range(10)])
    assert audited(data, protocol=protocol)["target_in_input"].count == 0
    actual = audited(data, protocol=protocol, target_in_input=True)
    assert actual["target_in_input"].share == 1.0
    assert actual.verdict.startswith("Leaks: 100.0 % of the test targets are in their own input;")
    assert any("TARGET IN INPUT" in stamp for stamp in actual.stamps)


def dishonest(split: Split, places: list[int]) -> Split:
    """The same split with more places among the training events."""
    return replace(split, train_events=np.append(split.train_events, places))


def test_a_test_event_that_shapes_the_graph_leaks(tmp_path):
    data = written(tmp_path / "data", [(0, [0, 1, 2, 3]), (1, [4, 5, 6, 7])])
    split = split_dataset(data, SplitConfig())
    assert counts(audit_split(data, split), "test_events", "validation_events") == [0, 0]
    tested = audit_split(data, dishonest(split, [7]))  # the last event of the second log
    assert counts(tested, "test_events", "validation_events") == [1, 0]
    assert "50.0 % of the test targets are training events" in tested.verdict
    validated = audit_split(data, dishonest(split, [2]))  # the last but one of the first
    assert counts(validated, "test_events", "validation_events") == [0, 1]
    assert tested.leaks
    assert validated.leaks


def test_training_on_the_whole_log_leaks(tmp_path):
    data = written(tmp_path / "data", [(0, [0, 1, 2, 3])])
    split = split_dataset(data, SplitConfig())
    whole = replace(split.train, events=np.asarray(data.events), offsets=np.array([0, 4]))
    actual = audit_split(data, replace(split, train=whole))
    assert counts(actual, "copies", "inside") == [1, 1]
    assert actual.verdict.startswith("Leaks: 100.0 % of the test logs are copies of a training log")


def test_a_cold_account_seen_in_training_leaks(tmp_path):
    data = written(tmp_path / "data", [(account, [0, 1, 2, 3]) for account in range(10)])
    split = split_dataset(data, SplitConfig(protocol="cold-accounts"))
    honest = audit_split(data, split)
    assert (honest["seen_accounts"].count, honest["unseen_accounts"].count, honest.leaks) == (0, 1, False)
    owners = split.train.sequence_accounts.copy()
    owners[0] = split.test.owner[0]
    actual = audit_split(data, replace(split, train=replace(split.train, sequence_accounts=owners)))
    assert actual["seen_accounts"].leaks


def test_unseen_accounts_and_items_by_hand(tmp_path):
    actual = windows(tmp_path / "data", [(0, [0, 1]), (0, [1, 2])], [(0, [1, 9]), (1, [0, 1]), (1, [0, 2])])
    assert (actual["unseen_accounts"].count, actual["unseen_accounts"].of) == (1, 2)  # accounts, not windows
    assert (actual["unseen_items"].count, actual["unseen_items"].of) == (1, 3)  # the 9


def test_an_account_whose_events_all_lie_behind_the_cut_is_unseen(tmp_path):
    times = np.array([1, 2, 3, 4, 5, 6, 10, 7, 8, 9])
    data = written(tmp_path / "data", [(0, [0, 1, 2, 3, 4, 5, 6]), (1, [7, 8, 9])], times=times)
    actual = audited(data, protocol="time", test_share=0.2)  # training ends before 7, the test begins at 9
    assert (actual["unseen_accounts"].count, actual["unseen_accounts"].of) == (1, 2)


def test_repeats_at_the_target_and_elsewhere_by_hand(tmp_path):
    actual = windows(tmp_path / "data", [(0, [1, 2, 2]), (0, [3, 3, 4, 3])], [(0, [5, 6, 6]), (1, [7, 7])])
    names = ("target_repeats_before", "other_repeats_before", "target_repeats_earlier", "other_repeats_earlier")
    # Targets: 2 2, 6 6 and 7 7, and the 3 behind a 4. Other places behind the first: 2, 3 (a repeat), 4, 6.
    assert [(actual[name].count, actual[name].of) for name in names] == [(3, 4), (1, 4), (4, 4), (1, 4)]
    assert any("75.0 % of the rows, against 25.0 %" in note for note in actual.notes)


def test_repeats_of_logs_are_those_of_the_tested_logs(tmp_path):
    actual = audited(written(tmp_path / "data", [(0, [1, 1, 2, 2]), (1, [3]), (2, [4, 5])]))
    assert [(actual[name].count, actual[name].of) for name in ("target_repeats_before", "other_repeats_before")] == [
        (1, 2),  # 2 2, and 4 5; the log of one event is not tested
        (1, 2),  # 1 1, and the first 2
    ]


def test_training_targets_are_edges_by_hand(tmp_path):
    data = written(tmp_path / "data", [(0, [0, 1, 1, 2, 8, 1]), (1, [0, 1, 2, 8, 3])])
    actual = audited(data, targets="all")
    # Training has 0 1 1 2 and 0 1 2: of the targets 1 1 2 and 1 2, the last three are the only event of their edge.
    assert [(actual[name].count, actual[name].of) for name in ("training_edges", "lone_edges")] == [(5, 5), (3, 5)]
    assert (actual["test_edges"].count, actual["test_edges"].of) == (1, 2)  # the first account's 1, not the other's 3
    assert "training_edges" not in audited(data, targets="last").to_json()["findings"]


def test_time_order_by_hand(tmp_path):
    times = np.array([1, 2, 5, 8, 1, 3, 6, 9, 2, 4])
    data = written(tmp_path / "data", [(0, [0, 1, 2, 3]), (1, [4, 5, 6, 7]), (2, [8, 9])], times=times)
    split = split_dataset(data, SplitConfig(protocol="time", test_share=0.2))  # cuts at 5 and 8
    honest = audit_split(data, split)
    assert [(honest[name].count, honest[name].of) for name in ("late_training", "late_inputs")] == [(0, 6), (0, 6)]
    assert not honest.leaks
    late = audit_split(data, dishonest(split, [6]))  # an event at 6, when validation targets begin at 5
    assert (late["late_training"].count, late["late_training"].of) == (1, 7)
    assert "14.3 % of the training events lie at or after the first validation target" in late.verdict
    assert audit_split(data, dishonest(split, [2]))["late_training"].count == 1  # at 5 itself
    seen = audit_split(data, replace(split, test=replace(split.test, stop=split.test.stop + 1)))
    assert seen["late_inputs"].count == 2  # both targets


def test_protocol_last_may_learn_from_later_events_of_others(tmp_path):
    times = np.array([1, 2, 3, 10, 11, 12])
    actual = audited(written(tmp_path / "data", [(0, [0, 1, 2]), (1, [3, 4, 5])], times=times))
    assert (actual["late_training"].count, actual["late_training"].of) == (
        1,
        2,
    )  # the event at 10; validation begins at 2
    assert actual["late_training"].role == "fact"
    assert not actual.leaks


def test_no_times_no_time_order(tmp_path):
    assert "late_training" not in audited(written(tmp_path / "data", [HOST])).to_json()["findings"]


some_rows = st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 2), max_size=12)), max_size=8)


@given(asked=some_rows, training=some_rows)
def test_inside_as_a_slow_loop_finds_it(asked, training):
    def lies_in(small: list[int], large: list[int]) -> bool:
        return bool(small) and any(large[at : at + len(small)] == small for at in range(len(large)))

    inside, whole = contained_in(rows(asked), rows(training), accounts=3, items=3)
    assert inside.tolist() == [any(a == b and lies_in(small, large) for b, large in training) for a, small in asked]
    assert whole.tolist() == [bool(small) and (account, small) in training for account, small in asked]


@given(long=st.lists(st.integers(0, 1), min_size=20, max_size=70), start=st.integers(0, 19), flip=st.booleans())
def test_long_runs_as_a_slow_loop_finds_them(long, start, flip):
    piece = long[start : start + 40]
    if flip:
        piece[len(piece) // 2] ^= 1
    slow = any(long[at : at + len(piece)] == piece for at in range(len(long)))
    assert contained_in(rows([(0, piece)]), rows([(0, long)]), accounts=1, items=2)[0].tolist() == [slow]


def test_shares_are_never_rounded_to_nothing_or_all():
    shares = [Finding("name", "label", count, 10_000).percent for count in (0, 1, 5, 9_999, 10_000)]
    assert shares == ["0.0 %", "under 0.1 %", "0.1 %", "over 99.9 %", "100.0 %"]
    assert (Finding("", "", None, 5).percent, Finding("", "", 0, 0).percent) == ("not tellable", "-")


def pair(folder: Path, train: str, test: str) -> tuple[Path, Path]:
    files = folder / "train.txt", folder / "test.txt"
    for file, text in zip(files, (train, test), strict=True):
        file.write_text(text, encoding="utf-8")
    return files


def test_two_files_by_hand(tmp_path):
    pytest.importorskip("polars")
    actual = audit_files(*pair(tmp_path, "ann\ta\tb\tc\t\nbob\td\te\t\n", "ann\tb\tc\t\nbob\td\te\t\nann\td\te\t\n"))
    assert counts(actual, "copies", "inside", "tail") == [1, 2, 2]
    assert counts(actual, "target_in_input", "test_events") == [None, None]  # places cannot be told from two files
    assert (actual.kind, actual["copies"].of) == ("windows", 3)


def test_two_files_agree_with_the_dataset_made_of_them(tmp_path):
    pytest.importorskip("polars")
    train, test = [HOST, (1, [5, 6, 7]), (1, [1, 2])], [(1, [6, 7]), (0, [1, 3])]
    texts = [
        "".join(f"{account}\t" + "".join(f"{item}\t" for item in items) + "\n" for account, items in part)
        for part in (train, test)
    ]
    by_files, by_folder = audit_files(*pair(tmp_path, *texts)), windows(tmp_path / "data", train, test)
    told = {finding.name: (finding.count, finding.of) for finding in by_folder.findings}
    assert all((one.count, one.of) == told[one.name] for one in by_files.findings if one.count is not None)


def test_two_files_of_logs(tmp_path):
    pytest.importorskip("polars")
    actual = audit_files(*pair(tmp_path, "ann\ta b c\nbob\td\n", "ann\ta b c d\nbob\td\n"), "logs")
    assert (actual["inside"].count, actual["inside"].of) == (0, 1)  # bob's one event has no input and is not asked
    assert actual.verdict == "No leak found: no test log is in the training data."


def test_two_files_refused(tmp_path):
    pytest.importorskip("polars")
    with pytest.raises(DataError, match="expected two files of windows or two of logs"):
        audit_files(*pair(tmp_path, "ann\ta\tb\t\n", "ann\ta b\n"))
    with pytest.raises(DataError, match=r"unknown format 'window'\. Did you mean 'windows'"):
        audit_files(*pair(tmp_path, "ann\ta\tb\t\n", "ann\ta\tb\t\n"), "window")
    with pytest.raises(DataError, match="two items or more"):
        audit_files(*pair(tmp_path, "ann\ta b\n", "ann\ta\n"), "logs")


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_command_prints_a_table_or_json(tmp_path):
    written(tmp_path / "data", [HOST, (1, [5, 6, 7])])
    shown = run(tmp_path / "data", "--protocol", "last")
    assert shown.exit_code == 0
    assert "test targets inside their own input" in shown.stdout
    assert shown.stdout.endswith("No leak found: no test target or test log is in the training data.\n")
    told = json.loads(run(tmp_path / "data", "--json").stdout)
    assert (told["leaks"], told["protocol"], told["findings"]["inside"]["share"]) == (False, "last", 0.0)


def test_strict_ends_with_one_where_something_leaks(tmp_path):
    written(tmp_path / "data", [HOST, (1, [5, 6, 7])])
    assert run(tmp_path / "data", "--strict").exit_code == 0
    leaking = run(tmp_path / "data", "--strict", "--target-in-input", "--json")
    assert (leaking.exit_code, json.loads(leaking.stdout)["leaks"]) == (1, True)
    assert run(tmp_path / "data", "--target-in-input").exit_code == 0


def test_command_reads_two_files(tmp_path):
    pytest.importorskip("polars")
    train, test = pair(tmp_path, "ann\ta\tb\n", "ann\ta\tb\n")
    told = run("--train", train, "--test", test, "--format", "windows", "--strict", "--json")
    assert (told.exit_code, json.loads(told.stdout)["findings"]["copies"]["count"]) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to audit"),
        (["--train", "a"], "one file is missing"),
        (["data", "--train", "a", "--test", "b"], "both a dataset and files"),
        (["--train", "a", "--test", "b", "--protocol", "last"], "--protocol applies to a dataset"),
        (["data", "--format", "logs"], "not to a prepared dataset"),
        (["data", "--protocol", "lats"], "Did you mean 'last'"),
        (["data", "--targets", "first"], "unknown value of targets"),
        (["data", "--domain", "E"], "unknown domain 'E'"),
        (["data", "--protocol", "time"], "needs times"),
    ],
)
def test_command_refuses(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "data", [HOST])
    problem = run(*arguments).exception
    assert isinstance(problem, LightGC2NError)
    assert message in str(problem)
    assert isinstance(problem, SettingError | DataError)


@pytest.mark.data
def test_the_real_data_leaks_as_published(tmp_path):
    pytest.importorskip("polars")
    folder = os.environ.get("LIGHTGC2N_DATA")
    if not folder:
        pytest.skip("LIGHTGC2N_DATA does not name the folder of the real logs")
    from lightgc2n.data.importing import ImportOptions, import_log

    def imported(name: str) -> Dataset:
        import_log(Path(folder, name), tmp_path / name.replace("/", "_"), ImportOptions())
        return load_dataset(tmp_path / name.replace("/", "_"))

    source = Path(folder, "hvideo-v-pair")
    both = (
        audit_files(source / "train_data.txt", source / "test_data.txt"),
        audited(imported("hvideo-v-pair"), protocol="windows"),
    )
    for actual in both:
        assert [actual[name].percent for name in ("copies", "inside")] == ["41.3 %", "91.8 %"]
    actual = audited(imported("ssr-windows/Hvideo_V"), protocol="windows")
    assert [actual[f"{place}_repeats_before"].percent for place in ("target", "other")] == ["64.5 %", "5.6 %"]
    actual = audited(imported("hvideo-logs/E.tsv"), protocol="last")
    assert (actual.leaks, actual["test_events"].of) == (False, 13_714)


def test_targets_at_the_time_of_the_event_before_are_counted(tmp_path: Path) -> None:
    times = np.array([1, 2, 2, 1, 2, 3]) * 1_000_000
    dataset = written(tmp_path / "data", [(0, [0, 1, 2]), (1, [3, 4, 5])], times=times)
    actual = audit_split(dataset, split_dataset(dataset, SplitConfig()))
    assert (actual["tied_targets"].count, actual["tied_targets"].of) == (1, 2)
    assert not actual.leaks
