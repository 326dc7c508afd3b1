import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgc2n.data import importing
from lightgc2n.data.dataset import Domain, load_dataset, verify_dataset
from lightgc2n.data.importing import ImportOptions, import_log
from lightgc2n.data.members import load_members
from lightgc2n.errors import DataError, OutputError, SettingError
from lightgc2n.files.atomic_writes import sha256

Event = tuple[str, str, int | None, str | None]  # domain, item, time, member

TABLE = """account_id,item_id,timestamp,domain,member
h2,007,1704110402,video,h2-1
h1,007,1704110401,learn,
h2,7,1704110400,video,h2-2
h1,é,1704110403,video,h1-1
h2,7,1704110402,video,h2-1
h3,7,1704110409,learn,h3-1
"""
SECOND = 1_000_000
LOGS: dict[str, list[Event]] = {
    # h2: the second row is older; of two rows of one second the upper one comes first
    "h2": [
        ("video", "7", 1704110400 * SECOND, "h2-2"),
        ("video", "007", 1704110402 * SECOND, "h2-1"),
        ("video", "7", 1704110402 * SECOND, "h2-1"),
    ],
    "h1": [("learn", "007", 1704110401 * SECOND, None), ("video", "é", 1704110403 * SECOND, "h1-1")],
    "h3": [("learn", "7", 1704110409 * SECOND, "h3-1")],
}


def logs_of(folder: Path) -> dict[str, list[Event]]:
    """Everything in a dataset of one log an account, by name."""
    dataset, members = load_dataset(folder), load_members(folder)
    verify_dataset(folder)
    logs: dict[str, list[Event]] = {}
    for account, start, stop in zip(dataset.sequence_accounts, dataset.offsets[:-1], dataset.offsets[1:], strict=True):
        logs[dataset.accounts[account]] = [
            (
                dataset.domains[dataset.event_domains[event]].name,
                dataset.items[dataset.events[event]],
                int(dataset.times[event]) if dataset.times is not None else None,
                members.names[members.of_event[event]] if members and members.of_event[event] >= 0 else None,
            )
            for event in range(start, stop)
        ]
    return logs


def rows_of_table() -> list[list[str]]:
    return [line.split(",") for line in TABLE.splitlines()]


def as_json() -> str:
    names, *rows = rows_of_table()
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)


def as_parquet(path: Path) -> None:
    pl.read_csv(TABLE.encode(), infer_schema=False).with_columns(pl.col("timestamp").cast(pl.Int64)).write_parquet(path)


def write_all(folder: Path) -> list[Path]:
    """The same table in every format that can hold it."""
    typed = "account_id:token,item_id:token,timestamp:float,domain:token,member:token\n"
    inter = TABLE.replace(TABLE.split("\n")[0] + "\n", typed)
    texts = {
        "log.csv": TABLE,
        "log.tsv": TABLE.replace(",", "\t"),
        "log.jsonl": as_json(),
        "log.inter": inter.replace(",", "\t"),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        (folder / f"{name}.zst").write_bytes(zstandard.compress(text.encode()))
    as_parquet(folder / "log.parquet")
    return sorted(folder.iterdir())


def run(source: Path, out: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "lightgc2n", "import", str(source), "--out", str(out), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_format_gives_the_same_dataset(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    checksums = set()
    for path in write_all(tmp_path / "in"):
        out = tmp_path / f"out {path.name}"
        checksums.add(import_log(path, out, ImportOptions())["checksum"])
        assert logs_of(out) == LOGS
    assert len(checksums) == 1


def test_the_manifest_records_source_options_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "tv.log.csv"
    source.write_text(TABLE, encoding="utf-8")
    manifest = import_log(source, tmp_path / "out", ImportOptions())
    assert json.loads(json.dumps(manifest)) == load_dataset(tmp_path / "out").manifest
    assert manifest["name"] == "tv"
    assert manifest["source"] == [{"file": "tv.log.csv", "sha256": sha256(source)}]
    assert manifest["options"]["format"] == "csv"
    assert manifest["counts"] == {
        "accounts": 3,
        "accounts_with_events": 3,
        "accounts_with_one_event": 1,
        "sequences": 3,
        "events": 6,
        "items": 5,
        "rows": 6,
        "rejected_rows": 0,
    }
    said = capsys.readouterr().err
    assert "account from 'account_id', item from 'item_id', time from 'timestamp', domain from 'domain'" in said
    assert "times read as numbers, s since 1970" in said
    assert manifest["notes"] == said.splitlines()


def test_one_id_in_two_domains_is_two_items(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(TABLE, encoding="utf-8")
    import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
    dataset = load_dataset(tmp_path / "out")
    assert dataset.domains == (Domain("learn", 0, 2), Domain("video", 2, 5))
    assert sorted(dataset.items[:2]) == ["007", "7"]
    assert sorted(dataset.items[2:]) == ["007", "7", "é"]


def test_without_times_the_order_of_the_file_stays(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item\nb,3\na,2\nb,1\na,9\nb,3\n")
    manifest = import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
    logs = logs_of(tmp_path / "out")
    assert {account: [event[1] for event in log] for account, log in logs.items()} == {
        "b": ["3", "1", "3"],
        "a": ["2", "9"],
    }
    assert "no time column: events keep the order of the file" in manifest["notes"]
    assert load_dataset(tmp_path / "out").times is None


def test_a_table_without_a_header_and_with_other_names(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("5,x,1,a\n4,y,1,a\n")
    options = ImportOptions(
        name="mine",
        header=("when", "what", "_", "who"),
        columns={"account": "who", "item": "what", "time": "when"},
        time_unit="ms",
    )
    assert import_log(tmp_path / "log.csv", tmp_path / "out", options)["name"] == "mine"
    assert logs_of(tmp_path / "out") == {"a": [("all", "y", 4000, None), ("all", "x", 5000, None)]}


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_units_of_time_are_inferred_and_reported(tmp_path: Path, unit: str, factor: int) -> None:
    (tmp_path / "log.csv").write_text(f"user,item,ts\na,x,{1704110400 * factor}\n")
    manifest = import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
    assert logs_of(tmp_path / "out")["a"][0][2] == 1704110400 * SECOND
    assert f"times read as numbers, {unit} since 1970: 2024-01-01T12:00 to 2024-01-01T12:00" in manifest["notes"]


def test_dates_without_dashes_are_dates(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item,date\na,x,20231124\na,y,20231125\n")
    manifest = import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
    assert logs_of(tmp_path / "out")["a"][0][2] == 1700784000 * SECOND
    assert any("2023-11-24T00:00 to 2023-11-25T00:00" in note for note in manifest["notes"])


TIED = "user,item,ts\n" + "".join(f"{user},{item},{100 if item < 4 else 200}\n" for user in "ab" for item in range(8))


def test_equal_times_keep_the_order_of_the_file_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(TIED)
    manifest = import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
    assert [event[1] for event in logs_of(tmp_path / "out")["a"]] == [str(item) for item in range(8)]
    assert any("in 2 of 2 accounts the last two events have equal times" in note for note in manifest["notes"])


def test_equal_times_in_a_random_order(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(TIED)
    actual = []
    for number, seed in enumerate((1, 1, 2)):
        import_log(tmp_path / "log.csv", tmp_path / f"{number}", ImportOptions(ties="random", seed=seed))
        actual.append([event[1] for event in logs_of(tmp_path / f"{number}")["a"]])
    assert actual[0] == actual[1] != actual[2]
    assert sorted(actual[0][:4]) == ["0", "1", "2", "3"]  # the earlier time stays first


def test_duplicate_rows_are_counted_and_dropped_on_request(tmp_path: Path) -> None:
    rows = "a,x,5\na,y,5\na,x,5\na,x,6\nb,x,5\n"
    (tmp_path / "log.csv").write_text("user,item,ts\n" + rows)
    kept = import_log(tmp_path / "log.csv", tmp_path / "kept", ImportOptions())
    dropped = import_log(tmp_path / "log.csv", tmp_path / "dropped", ImportOptions(drop_duplicates=True))
    assert (kept["counts"]["events"], dropped["counts"]["events"]) == (5, 4)
    assert any(note.startswith("1 rows repeat") for note in kept["notes"])
    assert [event[1] for event in logs_of(tmp_path / "dropped")["a"]] == ["x", "y", "x"]


@pytest.mark.parametrize("sign", [";", "|", "\t"])
def test_other_delimiters_are_detected_from_the_header(tmp_path: Path, sign: str) -> None:
    (tmp_path / "log.csv").write_text("user,item,ts\na,x,5\n".replace(",", sign))
    import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
    assert logs_of(tmp_path / "out")["a"][0][1] == "x"


def test_a_delimiter_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("Konto~Sendung\na~x\n")
    told = ImportOptions(delimiter="~", columns={"account": "Konto", "item": "Sendung"})
    import_log(tmp_path / "log.csv", tmp_path / "out", told)
    assert logs_of(tmp_path / "out")["a"][0][1] == "x"


@pytest.mark.parametrize("sign", ['"', "\n", "\r", "\0", "::"])
def test_a_delimiter_that_cannot_be_one(tmp_path: Path, sign: str) -> None:
    (tmp_path / "log.csv").write_text("user,item\na,x\n")
    with pytest.raises(SettingError, match=r"^delimiter: expected one character for a CSV file"):
        import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions(delimiter=sign))


def test_a_delimiter_of_several_bytes(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text('user§item§title\na§x§"one\ntwo§"\nb§5" disk§"§"\n', encoding="utf-8")
    manifest = import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions(delimiter="§"))
    assert manifest["counts"]["rows"] == 2
    assert {account: log[0][1] for account, log in logs_of(tmp_path / "out").items()} == {"a": "x", "b": '5" disk'}


def test_columns_that_are_not_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item,when_watched\na,x,5\n")
    manifest = import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
    assert "columns not used: 'when_watched'" in manifest["notes"]
    assert (
        "no time column: events keep the order of the file; name the time column if there is one" in manifest["notes"]
    )


IDS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=6)
EVENTS = st.lists(
    st.tuples(IDS, IDS, st.integers(0, 5), st.sampled_from(["v", "l"]), st.one_of(st.none(), IDS)),
    min_size=1,
    max_size=25,
)


@settings(deadline=None, max_examples=25)
@given(events=EVENTS)
def test_any_log_comes_back_in_order(tmp_path_factory: pytest.TempPathFactory, events: Sequence[Any]) -> None:
    folder = tmp_path_factory.mktemp("any")
    names = ("user", "item", "time", "domain", "member")
    lines = (json.dumps(dict(zip(names, event, strict=True))) for event in events)
    (folder / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    expected: dict[str, list[Event]] = {}
    for account, item, time, domain, member in events:
        expected.setdefault(account, []).append((domain, item, time * SECOND, member))
    for log in expected.values():
        log.sort(key=lambda event: event[2] or 0)  # stable: equal times keep the order of the file
    first = import_log(folder / "log.jsonl", folder / "out", ImportOptions())
    assert logs_of(folder / "out") == expected
    again = import_log(folder / "log.jsonl", folder / "again", ImportOptions())
    assert first["checksum"] == again["checksum"]


def test_a_large_log_has_one_checksum(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = pl.DataFrame({name: random.integers(0, 3000, 150_000) for name in ("user", "item", "timestamp", "member")})
    table.write_csv(tmp_path / "log.csv")
    table.cast(pl.String).write_parquet(tmp_path / "log.parquet", row_group_size=10_000)
    actual = [
        import_log(tmp_path / name, tmp_path / f"out{turn}", ImportOptions())["checksum"]
        for turn, name in enumerate(["log.csv", "log.csv", "log.parquet"])
    ]
    assert len(set(actual)) == 1
    dataset = load_dataset(tmp_path / "out0")
    rows: dict[str, list[tuple[int, str]]] = {}
    for user, item, time in table.select("user", "item", "timestamp").iter_rows():
        rows.setdefault(str(user), []).append((time, str(item)))
    assert list(dataset.accounts) == list(rows)
    for account, start, stop in zip(dataset.accounts, dataset.offsets, dataset.offsets[1:], strict=False):
        log = sorted(rows[account], key=lambda row: row[0])
        assert [dataset.items[item] for item in dataset.events[start:stop]] == [item for _, item in log]


BAD_TABLE = "user,item,timestamp\na,x,1\na,,2\nb,y,never\nb,z,4\n"


def test_a_bad_row_stops_the_import(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(BAD_TABLE)
    with pytest.raises(DataError, match=r"log\.csv:3: column item: expected an id, found nothing"):
        import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_skip_bad_leaves_bad_rows_out_and_counts_them(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(BAD_TABLE)
    manifest = import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions(skip_bad=True))
    assert {account: [event[1] for event in log] for account, log in logs_of(tmp_path / "out").items()} == {
        "a": ["x"],
        "b": ["z"],
    }
    assert manifest["counts"]["rejected_rows"] == 2
    assert "4 rows: 2 read, 2 rejected (rejected.tsv lists them)" in manifest["notes"]
    assert "rejected.tsv" in manifest["files"]
    listed = (tmp_path / "out" / "rejected.tsv").read_text().splitlines()
    assert [line.split("\t")[:3] for line in listed] == [
        ["file", "line", "column"],
        ["log.csv", "3", "item"],
        ["log.csv", "4", "timestamp"],
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.csv", "user,item,domain\na,,v\n,x,l\n", r"log\.csv: expected events, found 2 bad rows only"),
        ("log.csv", "user,item\n", r"log\.csv: expected events, found none"),
        ("log.csv", "", r"log\.csv: the file is empty"),
        ("log.jsonl", "", r"log\.jsonl: expected events, found none"),
        ("log.tsv", "", r"log\.tsv: the file is empty"),
    ],
)
def test_a_log_without_good_rows_is_an_error(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        import_log(tmp_path / name, tmp_path / "out", ImportOptions(skip_bad=True))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_too_many_domains(tmp_path: Path) -> None:
    for count, good in ((255, True), (256, False)):
        rows = "".join(f"u,i{number},d{number}\n" for number in range(count))
        (tmp_path / "log.csv").write_text("user,item,domain\n" + rows)
        if good:
            import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
            assert len(set(load_dataset(tmp_path / "out").event_domains.tolist())) == count
        else:
            with pytest.raises(DataError, match=r"log\.csv: column domain: expected at most 255 domains, found 256"):
                import_log(tmp_path / "log.csv", tmp_path / "out2", ImportOptions())


def test_options_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "log.tsv").write_text("a\tx y\n")
    for one in ({"time_unit": "ms"}, {"header": ("a",)}, {"columns": {"item": "x"}}, {"where": "x = 1"}):
        with pytest.raises(SettingError, match="logs have neither columns nor times"):
            import_log(tmp_path / "log.tsv", tmp_path / "out", ImportOptions(format="logs", **one))  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="unknown unit 'weeks'"):
        import_log(tmp_path / "log.tsv", tmp_path / "out", ImportOptions(time_unit="weeks"))


def test_a_name_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_text("user,item\na,x\n")
    assert import_log(path, tmp_path / "out", ImportOptions())["name"] == "caf?"


def test_out_is_never_overwritten_without_force(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item\na,x\n")
    import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
    (tmp_path / "log.csv").write_text("user,item\na,new\n")
    with pytest.raises(OutputError, match="exists already"):
        import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
    assert load_dataset(tmp_path / "out").items == ["x"]
    import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions(), force=True)
    assert load_dataset(tmp_path / "out").items == ["new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "out"]


def test_force_replaces_nothing_but_datasets(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item\na,x\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").touch()
    for out in (tmp_path / "home", tmp_path / "log.csv"):
        with pytest.raises(OutputError, match="was not made by this command"):
            import_log(tmp_path / "log.csv", out, ImportOptions(), force=True)
    assert (tmp_path / "home" / "thesis.txt").exists()


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("moment", ["detect", "_read_events", "_logs_from_events", "say", "sha256", "write_dataset"])
def test_a_stop_at_any_moment_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, force: bool
) -> None:
    (tmp_path / "log.csv").write_text("user,item\na,x\n")
    if force:
        import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
        before = load_dataset(tmp_path / "out").checksum
    whole = getattr(importing, moment)

    def stopped(*arguments: Any, **named: Any) -> None:
        whole(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(importing, moment, stopped)
    with pytest.raises(KeyboardInterrupt):
        import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions(), force=force)
    assert sorted(path.name for path in tmp_path.iterdir()) == (["log.csv", "out"] if force else ["log.csv"])
    if force:
        assert load_dataset(tmp_path / "out").checksum == before


def import_of_pipe(pipe: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "lightgc2n", "import", str(pipe), "--format", "csv", "--out", str(out)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("sent", [b"", b"user,item\na,x\n"])
def test_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals, sent: bytes) -> None:
    pipe = tmp_path / "log.csv"
    os.mkfifo(pipe)
    command = import_of_pipe(pipe, tmp_path / "out")
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # Opening waits until the child reads; then it is amid its work, and it waits as long as the pipe is open.
    with pipe.open("wb") as writer:
        writer.write(sent)
        writer.flush()
        assert len(list(tmp_path.glob(".out.*"))) == 1
        child.send_signal(number)
        _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_a_pipe_can_be_imported(tmp_path: Path) -> None:
    pipe = tmp_path / "log.csv"
    os.mkfifo(pipe)
    command = import_of_pipe(pipe, tmp_path / "out")
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child:
        pipe.write_bytes(b"user,item\na,x\n")
        assert child.wait(timeout=30) == 0
    assert logs_of(tmp_path / "out") == {"a": [("all", "x", None, None)]}
    assert load_dataset(tmp_path / "out").manifest["source"] == [{"file": "log.csv", "sha256": None}]


def test_the_command(tmp_path: Path) -> None:
    source, out = tmp_path / "log.csv", tmp_path / "out"
    source.write_text(TABLE, encoding="utf-8")
    done = run(source, out, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["counts"]["accounts_with_one_event"] == 1
    assert logs_of(out) == LOGS
    taken = run(source, out)
    assert taken.returncode == 2
    assert "exists already" in taken.stderr

    source.write_text(BAD_TABLE)
    bad = run(source, out, "--force")
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert bad.stderr.splitlines()[-1].startswith(f"error: {source}:3: column item: expected an id, found nothing.")
    assert "Traceback" not in bad.stderr
    assert logs_of(out) == LOGS  # what stood there still does
    assert run(source, out, "--force", "--skip-bad").returncode == 0
    assert (out / "rejected.tsv").is_file()


def test_the_examples_of_the_documentation(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    examples = [example.partition("```")[0] for example in text.split("```text\n")[1:]]
    formats = {"csv": "a.csv", "recbole": "a.inter", "movietweetings": "a.dat", "jsonl": "a.jsonl", "logs": "a.tsv"}
    formats |= {"mixed": "", "windows": "w.txt", "sessions": "s.txt"}
    for (form, name), example in zip(formats.items(), examples, strict=True):
        if form != "mixed":
            (tmp_path / name).write_text(example, encoding="utf-8")
            assert import_log(tmp_path / name, tmp_path / form, ImportOptions())["options"]["format"] == form
            continue
        (tmp_path / "two").mkdir()
        for line in example.splitlines():
            file, _, log = line.partition(" ")
            (tmp_path / "two" / file).write_text(log.strip() + "\n")
        assert import_log(tmp_path / "two", tmp_path / "mixed", ImportOptions())["counts"]["events"] == 2


def test_what_polars_cannot_read_is_an_error_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: Any) -> None:
        raise pl.exceptions.PanicException("index out of bounds\nmore")

    (tmp_path / "log.csv").write_text("user,item\na,x\n")
    monkeypatch.setattr(importing, "_read_events", panic)
    with pytest.raises(DataError, match=r"log\.csv: cannot be read as csv: index out of bounds\.$"):
        import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
