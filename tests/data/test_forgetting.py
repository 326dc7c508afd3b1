"""A forgotten account is in no file of the dataset any more; what is left is a sound dataset with its own checksum."""

from pathlib import Path

import numpy as np
import pytest

from lightgc2n.data.dataset import Domain, load_dataset, verify_dataset, write_dataset
from lightgc2n.data.forgetting import forget_in_dataset
from lightgc2n.data.households import HouseholdConfig, generate
from lightgc2n.data.importing import ImportOptions, import_log
from lightgc2n.data.members import load_members
from lightgc2n.errors import DataError
from tests.cli.test_commands import run


def test_by_hand(tmp_path: Path) -> None:
    """Accounts a, b, a in three lines of two, one and three events: without a, the line of b is left."""
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
    forget_in_dataset(folder, "a")
    verify_dataset(folder)
    left, members = load_dataset(folder), load_members(folder)
    assert (left.accounts, left.items) == (["b"], ["x", "y", "z"])
    assert (left.offsets.tolist(), left.sequence_accounts.tolist(), left.events.tolist()) == ([0, 1], [0], [2])
    assert left.times is not None
    assert left.targets is not None
    assert left.parts is not None
    assert (left.times.tolist(), left.targets.tolist(), left.parts.tolist()) == ([12], [[1]], [1])
    assert members is not None
    assert (members.names, members.of_event.tolist()) == (["b-1"], [0])
    assert left.manifest["notes"] == ["a note", "accounts were forgotten"]
    with pytest.raises(DataError, match="'b' is its only account"):
        forget_in_dataset(folder, "b")
    with pytest.raises(DataError, match="holds no account 'a'"):
        forget_in_dataset(folder, "a")


def test_a_town(tmp_path: Path) -> None:
    generate(HouseholdConfig(accounts=12), seed=0, out=tmp_path / "data")
    before = load_dataset(tmp_path / "data")
    events = {one: before.events[before.sequence_accounts.repeat(before.lengths) == n].tolist()
              for n, one in enumerate(before.accounts)}  # fmt: skip
    checksum = forget_in_dataset(tmp_path / "data", "h000004")["checksum"]
    verify_dataset(tmp_path / "data")
    after = load_dataset(tmp_path / "data")
    assert after.checksum == checksum != before.checksum
    owner = after.sequence_accounts.repeat(after.lengths)
    assert {one: after.events[owner == n].tolist() for n, one in enumerate(after.accounts)} == {
        one: found for one, found in events.items() if one != "h000004"
    }
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert not [path for path in files if b"h000004" in path.read_bytes()]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_rejected_rows_go_too(tmp_path: Path) -> None:
    rows = [f"u{user},i{event},{1_400_000_000 + event}" for user in range(3) for event in range(4)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,timestamp", *rows, "u1,i1,never"]) + "\n")
    import_log(tmp_path / "log.csv", tmp_path / "data", ImportOptions(skip_bad=True))
    assert (tmp_path / "data" / "rejected.tsv").exists()
    manifest = forget_in_dataset(tmp_path / "data", "u1")
    assert not (tmp_path / "data" / "rejected.tsv").exists()
    assert manifest["counts"]["rejected_rows"] == 0
    assert not [note for note in manifest["notes"] if "rejected.tsv" in note]
    verify_dataset(tmp_path / "data")


def test_the_command(tmp_path: Path) -> None:
    generate(HouseholdConfig(accounts=5), seed=0, out=tmp_path / "data")
    done = run("forget", "h000004", "--data", tmp_path / "data")
    assert done.returncode == 0, done.stderr
    assert load_dataset(tmp_path / "data").checksum in done.stdout
    assert "train anew" in done.stderr
