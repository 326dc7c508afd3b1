"""A forgotten account is in no file of the dataset any more; what is left is a sound dataset with its own checksum."""

import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightgc2n.data import forget_dataset
from lightgc2n.data.dataset import Dataset, Domain, load_dataset, verify_dataset, write_dataset
from lightgc2n.data.forget_dataset import forget_in_dataset
from lightgc2n.data.importing import ImportOptions, import_log
from lightgc2n.data.members import load_members
from lightgc2n.errors import DataError
from lightgc2n.files import writer_lock
from lightgc2n.synthetic.households import HouseholdConfig, generate
from tests.cli.test_commands import run


def test_by_hand(tmp_path: Path) -> None:
    """Accounts a, b, a have three lines of two, one and three events: without a, the line of b is left.

    Only a has x, so x goes too; b has z as an event and y as a target.
    """
    folder = tmp_path / "data"
    folder.mkdir()
    write_dataset(
        folder,
        name="small",
        kind="windows",
        accounts=["a", "b"],
        items=["x", "y", "z"],
        domains=[Domain("all", 0, 3)],
        offsets=np.array([0, 2, 3, 6]),
        sequence_accounts=np.array([0, 1, 0]),
        events=np.array([0, 1, 2, 0, 1, 2]),
        times=np.array([10, 11, 12, 13, 14, 15]),
        targets=np.array([[0], [1], [-1]]),
        parts=np.array([0, 1, 0]),
        members=np.array([0, 0, 2, 1, -1, 1]),
        member_names=["a-1", "a-2", "b-1"],
        notes=["a note"],
    )
    forget_in_dataset(folder, ["a"])
    verify_dataset(folder)
    left, members = load_dataset(folder), load_members(folder)
    assert (left.accounts, left.items) == (["b"], ["y", "z"])
    assert (left.offsets.tolist(), left.sequence_accounts.tolist(), left.events.tolist()) == ([0, 1], [0], [1])
    assert left.times is not None
    assert left.targets is not None
    assert left.parts is not None
    assert (left.times.tolist(), left.targets.tolist(), left.parts.tolist()) == ([12], [[0]], [1])
    assert members is not None
    assert (members.names, members.of_event.tolist()) == (["b-1"], [0])
    assert left.manifest["notes"] == ["a note", "accounts were forgotten"]
    with pytest.raises(DataError, match="no account would be left without 'b'"):
        forget_in_dataset(folder, ["b"])
    assert forget_in_dataset(folder, ["a"]).accounts == []
    assert load_dataset(folder).checksum == left.checksum


def ids_by_account(dataset: Dataset) -> dict[str, list[str]]:
    owner = dataset.sequence_accounts.repeat(dataset.lengths)
    return {
        account: [dataset.items[item] for item in dataset.events[owner == number]]
        for number, account in enumerate(dataset.accounts)
    }


def test_a_town(tmp_path: Path) -> None:
    generate(HouseholdConfig(accounts=12), seed=0, out=tmp_path / "data")
    before = ids_by_account(load_dataset(tmp_path / "data"))
    forgotten = forget_in_dataset(tmp_path / "data", ["h000004", "h000007", "nobody"])
    verify_dataset(tmp_path / "data")
    after = load_dataset(tmp_path / "data")
    gone = {item for account in ("h000004", "h000007") for item in before.pop(account)}
    left = {item for items in before.values() for item in items}
    assert forgotten.accounts == ["h000004", "h000007"]
    assert after.checksum == forgotten.checksum
    assert ids_by_account(after) == before
    assert set(forgotten.items) == gone - left
    assert not set(after.items) & set(forgotten.items)
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    held = [path for path in files for name in (b"h000004", b"h000007") if name in path.read_bytes()]
    assert not held
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_rejected_rows_go_too(tmp_path: Path) -> None:
    rows = [f"u{user},i{event},{1_400_000_000 + event}" for user in range(3) for event in range(4)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,timestamp", *rows, "u1,i1,never"]) + "\n")
    import_log(tmp_path / "log.csv", tmp_path / "data", ImportOptions(skip_bad=True))
    assert (tmp_path / "data" / "rejected.tsv").exists()
    forget_in_dataset(tmp_path / "data", ["u1"])
    assert not (tmp_path / "data" / "rejected.tsv").exists()
    manifest = load_dataset(tmp_path / "data").manifest
    assert manifest["counts"]["rejected_rows"] == 0
    assert not [note for note in manifest["notes"] if "rejected.tsv" in note]
    verify_dataset(tmp_path / "data")


def test_the_command(tmp_path: Path) -> None:
    generate(HouseholdConfig(accounts=6), seed=0, out=tmp_path / "data")
    (tmp_path / "ids.txt").write_text("h000004\nh000002\n")
    done = run("forget", "h000001", "--accounts-file", tmp_path / "ids.txt", "--data", tmp_path / "data")
    assert done.returncode == 0, done.stderr
    dataset = load_dataset(tmp_path / "data")
    assert dataset.checksum in done.stdout
    assert "forgot 3 accounts" in done.stdout
    assert "stays: salted hashes of the ids" in done.stdout
    assert list(dataset.accounts) == ["h000000", "h000003", "h000005"]
    assert "no account. Give ids" in run("forget", "--data", tmp_path / "data").stderr


def write_log(path: Path) -> None:
    rows = [f"u{user},i{user}{event},{1_400_000_000 + event}" for user in range(5) for event in range(4)]
    path.write_text("\n".join(["user,item,timestamp", *rows, "u1,i1,never"]) + "\n")


def test_importing_again_leaves_forgotten_accounts_out(tmp_path: Path) -> None:
    log, data = tmp_path / "log.csv", tmp_path / "data"
    write_log(log)
    import_log(log, data, ImportOptions(skip_bad=True))
    forget_in_dataset(data, ["u1"])
    for _ in range(2):  # the second import replaces a dataset that was imported, not one that `forget` wrote
        manifest = import_log(log, data, ImportOptions(skip_bad=True), force=True)
        assert load_dataset(data).accounts == ["u0", "u2", "u3", "u4"]
        assert "1 accounts that were forgotten are left out" in manifest["notes"]
        assert not [path for path in data.rglob("*") if path.is_file() and b"u1" in path.read_bytes()]
    assert b"i12" not in (data / "items.txt").read_bytes()


def test_a_tombstone_file_is_honoured_by_any_import(tmp_path: Path) -> None:
    log, data, graves = tmp_path / "log.csv", tmp_path / "data", tmp_path / "forgotten.json"
    write_log(log)
    run("import", log, "--out", data, "--skip-bad")
    assert run("forget", "u1", "--data", data, "--tombstones", graves).returncode == 0
    assert run("forget", "u3", "--data", data, "--tombstones", graves).returncode == 0
    assert b"u1" not in graves.read_bytes()
    done = run("import", log, "--out", tmp_path / "again", "--skip-bad", "--tombstones", graves)
    assert done.returncode == 0, done.stderr
    assert load_dataset(tmp_path / "again").accounts == ["u0", "u2", "u4"]
    graves.write_text("[]")
    done = run("import", log, "--out", tmp_path / "third", "--tombstones", graves)
    assert (done.returncode, (tmp_path / "third").exists()) == (2, False)
    assert "not a tombstone file" in done.stderr


def test_two_at_once_both_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second starts when the first has read the dataset and not yet written it."""
    generate(HouseholdConfig(accounts=12), seed=0, out=tmp_path / "data")
    write, threads = forget_dataset.write_dataset, []
    waiting = threading.Event()
    monkeypatch.setattr(writer_lock, "notify", lambda _: waiting.set())

    def write_late(folder: Path, **content: Any) -> Any:
        if not threads:
            threads.append(threading.Thread(target=forget_in_dataset, args=(tmp_path / "data", ["h000002"])))
            threads[0].start()
            assert waiting.wait(60)
        return write(folder, **content)

    monkeypatch.setattr(forget_dataset, "write_dataset", write_late)
    forget_in_dataset(tmp_path / "data", ["h000001"])
    threads[0].join()
    accounts = load_dataset(tmp_path / "data").accounts
    assert not {"h000001", "h000002"} & set(accounts)
    assert len(accounts) == 10


KILLED = """
import os, sys
from pathlib import Path
from lightgc2n.data import forget_dataset
from lightgc2n.files import folder_kinds, writer_lock

def stop(*_):
    os._exit(9)

def unsupported(one, other):
    raise OSError(22, "Invalid argument")

exchange, remove, rename = writer_lock._exchange, folder_kinds.FolderKind.remove, os.rename
step = sys.argv[2]
if step.startswith("without exchange"):
    writer_lock._exchange = unsupported
if step == "before the exchange":
    writer_lock._exchange = stop
elif step == "after the exchange":
    writer_lock._exchange = lambda one, other: stop(exchange(one, other))
elif step == "while removing":
    folder_kinds.FolderKind.remove = lambda kind, folder: stop((folder / "events.npy").unlink())
elif step == "without exchange, before the second rename":
    def rename_once(one, other):
        rename(one, other) if other.name != "data" or other.exists() else stop()

    os.rename = rename_once
elif step == "without exchange, after the second rename":
    folder_kinds.FolderKind.remove = stop
forget_dataset.forget_in_dataset(Path(sys.argv[1]), ["h000001"])
"""


@pytest.mark.parametrize(
    ("step", "forgotten"),
    [
        ("before the exchange", False),
        ("after the exchange", True),
        ("while removing", True),
        ("without exchange, before the second rename", True),
        ("without exchange, after the second rename", True),
        ("without exchange", True),
    ],
)
def test_killed_while_it_swaps(step: str, forgotten: bool, tmp_path: Path) -> None:
    data = tmp_path / "data"
    generate(HouseholdConfig(accounts=8), seed=0, out=data)
    before = {path.name: path.read_bytes() for path in data.glob("*.npy")}
    done = subprocess.run([sys.executable, "-c", KILLED, data, step], check=False, timeout=120)
    assert done.returncode == (0 if step == "without exchange" else 9)
    dataset = load_dataset(data)  # the next command, whatever it is
    verify_dataset(data)
    assert ("h000001" not in dataset.accounts) == forgotten
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert (before == {path.name: path.read_bytes() for path in data.glob("*.npy")}) != forgotten


def test_a_full_disk_leaves_the_dataset_as_it_was(tmp_path: Path, small_disk: Path) -> None:
    data = small_disk / "data"
    generate(HouseholdConfig(accounts=60), seed=0, out=data)
    before = {path.name: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    (small_disk / "filler").write_bytes(bytes(shutil.disk_usage(small_disk).free - 8192))
    done = run("forget", "h000001", "--data", data)
    assert done.returncode == 2
    assert "Free disk space" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in small_disk.iterdir()) == ["data", "filler"]


def test_ids_with_odd_line_breaks_and_a_byte_order_mark(tmp_path: Path) -> None:
    """A file of ids is split at line feeds alone: U+2028 and U+0085 may stand in an id."""
    users = ["h1", "x9", "h1\u2028x9", "q", "r", "q\u0085r", "first"]
    rows = [f"{user},i{event},{1_400_000_000 + event}" for user in users for event in range(3)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,timestamp", *rows]) + "\n", encoding="utf-8", newline="\n")
    import_log(tmp_path / "log.csv", tmp_path / "data", ImportOptions())
    (tmp_path / "ids.txt").write_bytes("\ufefffirst\r\nh1\u2028x9\r\nq\u0085r\r\n".encode())
    done = run("forget", "--accounts-file", tmp_path / "ids.txt", "--data", tmp_path / "data")
    assert done.returncode == 0, done.stderr
    assert set(load_dataset(tmp_path / "data").accounts) == {"h1", "x9", "q", "r"}


def test_unknown_ids_are_named(tmp_path: Path) -> None:
    generate(HouseholdConfig(accounts=6), seed=0, out=tmp_path / "data")
    done = run("forget", "h000001", "h00002", "--data", tmp_path / "data")
    assert done.returncode == 2
    assert "forgot 1 account" in done.stdout
    assert "in none of these places: 'h00002'. The others were forgotten." in done.stderr


def test_a_foreign_file_is_reported_before_any_place_is_changed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        generate(HouseholdConfig(accounts=6), seed=0, out=tmp_path / name)
    (tmp_path / "b" / "notes.txt").write_text("mine")
    done = run("forget", "h000001", "--data", tmp_path / "a", "--data", tmp_path / "b")
    assert done.returncode == 2
    assert "h000001" in load_dataset(tmp_path / "a").accounts


def test_a_tombstone_can_be_added_afterwards(tmp_path: Path) -> None:
    log, data, graves = tmp_path / "log.csv", tmp_path / "data", tmp_path / "forgotten.json"
    write_log(log)
    run("import", log, "--out", data, "--skip-bad")
    assert run("forget", "u1", "--data", data).returncode == 0
    (tmp_path / "link.json").symlink_to("forgotten.json")
    assert run("forget", "u1", "--data", data, "--tombstones", tmp_path / "link.json").returncode == 2  # not there
    run("import", log, "--out", tmp_path / "again", "--skip-bad", "--tombstones", graves)
    assert "u1" not in load_dataset(tmp_path / "again").accounts


def test_tombstones_hold(tmp_path: Path) -> None:
    """They survive `generate --force`, are kept by an import that was given them, and cover accounts not there yet."""
    log, data, graves = tmp_path / "log.csv", tmp_path / "data", tmp_path / "forgotten.json"
    write_log(log)
    run("import", log, "--out", data, "--skip-bad")
    run("forget", "u1", "later", "--data", data, "--tombstones", graves)
    assert run("generate", "--accounts", 50, "--out", data, "--force").returncode == 0
    log.write_text(log.read_text() + "later,i1,1400000000\nlater,i2,1400000001\n")
    run("import", log, "--out", data, "--skip-bad", "--force")
    assert load_dataset(data).accounts == ["u0", "u2", "u3", "u4"]
    run("import", log, "--out", tmp_path / "fresh", "--skip-bad", "--tombstones", graves)
    run("import", log, "--out", tmp_path / "fresh", "--skip-bad", "--force")
    assert load_dataset(tmp_path / "fresh").accounts == ["u0", "u2", "u3", "u4"]
