""""""

import errno
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightgc2n.data.dataset import Dataset, Domain, load_dataset, read_ids, save_array, verify_dataset, write_dataset
from lightgc2n.data.members import load_members
from lightgc2n.errors import DataError

# Two accounts, two domains: a sees e1 v1 e2, b sees v2; the next items of a are e1 and v2, b has only v1.
CONTENT: dict[str, Any] = {
    "name": "small",
    "kind": "logs",
    "accounts": ["a", "b", "never seen"],
    "items": ["e1", "e2", " v1 ", "vé"],
    "domains": [Domain("E", 0, 2), Domain("V", 2, 4)],
    "offsets": np.array([0, 3, 4]),
    "sequence_accounts": np.array([0, 1]),
    "events": np.array([0, 2, 1, 3]),
    "times": np.array([10, 20, 30, 40]),
    "targets": np.array([[0, 3], [-1, 2]]),
    "members": np.array([0, 1, -1, 0]),
    "member_names": ["ann", "ben"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_dataset(tmp_path, **CONTENT)
    return tmp_path


def mend_manifest(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_what_is_written_is_loaded(folder: Path) -> None:
    dataset = load_dataset(folder)
    assert (dataset.name, dataset.kind) == ("small", "logs")
    assert (list(dataset.accounts), list(dataset.items)) == (CONTENT["accounts"], CONTENT["items"])
    assert dataset.domains == tuple(CONTENT["domains"])
    for name in ("offsets", "sequence_accounts", "events", "times", "targets"):
        array = getattr(dataset, name)
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable
        np.testing.assert_array_equal(array, CONTENT[name])
    assert dataset.parts is None
    assert dataset.lengths.tolist() == [3, 1]
    assert dataset.event_domains.tolist() == [0, 1, 0, 1]
    assert dataset.item_index == {"e1": 0, "e2": 1, " v1 ": 2, "vé": 3}
    verify_dataset(folder)


def test_members_are_stored_apart_from_the_dataset(folder: Path) -> None:
    assert "member" not in " ".join(vars(load_dataset(folder)))
    members = load_members(folder)
    assert members is not None
    assert (members.names, members.of_event.tolist()) == (["ann", "ben"], [0, 1, -1, 0])


def test_counts(folder: Path) -> None:
    assert load_dataset(folder).manifest["counts"] == {
        "accounts": 3,
        "accounts_with_events": 2,
        "accounts_with_one_event": 1,
        "sequences": 2,
        "events": 4,
        "items": 4,
    }


def test_one_domain_alone(folder: Path) -> None:
    only = load_dataset(folder).only("V")
    assert only.items == [" v1 ", "vé"]
    assert only.domains == (Domain("V", 0, 2),)
    assert only.offsets.tolist() == [0, 2, 4]
    assert only.events.tolist() == [0, 1, 1, 0]  # a: v1, then its target; b: vé, then its target
    assert only.targets is None
    with pytest.raises(DataError, match=r"unknown domain 'W'"):
        load_dataset(folder).only("W")


def test_the_same_content_has_the_same_checksum(tmp_path: Path) -> None:
    checksums = []
    for name, content in [("a", CONTENT), ("b", CONTENT), ("c", CONTENT | {"events": np.array([0, 2, 1, 2])})]:
        (tmp_path / name).mkdir()
        checksums.append(write_dataset(tmp_path / name, **content)["checksum"])
    assert checksums[0] == checksums[1] != checksums[2]


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not a prepared dataset.*lightgc2n\.Dataset\.from_path"):
        load_dataset(tmp_path)
    with pytest.raises(DataError, match=r"not a prepared dataset"):
        load_dataset(tmp_path / "missing")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"name": "an app"}', "\udcff"])
def test_a_foreign_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=r"manifest\.json: not a manifest of a prepared dataset"):
        load_dataset(tmp_path)


def test_another_schema_is_refused(folder: Path) -> None:
    mend_manifest(folder, schema=99)
    with pytest.raises(DataError, match=r"schema 99, this version reads 1. Import it again"):
        load_dataset(folder)


def test_a_changed_list_of_files_is_refused(folder: Path) -> None:
    mend_manifest(folder, checksum="0" * 64)
    with pytest.raises(DataError, match="its checksum does not match its list of files"):
        load_dataset(folder)


@pytest.mark.parametrize("file", ["events.npy", "items.txt", "offsets.npy", "labels/members.npy"])
def test_a_cut_or_missing_file_is_refused(folder: Path, file: str) -> None:
    path = folder / file
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"{file}: missing, or not [0-9,]+ bytes"):
        load_dataset(folder)
    path.unlink()
    with pytest.raises(DataError, match=rf"{file}: missing"):
        load_dataset(folder)


@pytest.mark.parametrize("file", ["events.npy", "items.txt", "labels/members.npy"])
def test_the_checksum_detects_a_changed_byte(folder: Path, file: str) -> None:
    path = folder / file
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    load_dataset(folder)  # reading all of it would take long
    with pytest.raises(DataError, match=rf"{file}: checksum .*expected .*Import it again"):
        verify_dataset(folder)


def test_ids_keep_every_sign_but_the_newline(tmp_path: Path) -> None:
    ids = ["007", " a ", "", "\r", "\u2028", "\x85", "日本", '"', "\\n"]
    dataset = CONTENT | {"items": ids, "domains": [Domain("all", 0, len(ids))], "targets": None}
    write_dataset(tmp_path, **dataset)
    assert read_ids(tmp_path / "items.txt") == ids
    assert isinstance(load_dataset(tmp_path), Dataset)


@pytest.mark.parametrize(
    "array", [np.arange(5), np.zeros((0, 3), np.int32), np.arange(6).reshape(2, 3), np.arange(6, dtype=np.uint8)[::2]]
)
def test_the_bytes_are_those_of_numpy(tmp_path: Path, array: np.ndarray) -> None:
    save_array(tmp_path / "a.npy", array)
    expected = io.BytesIO()
    np.save(expected, array)
    assert (tmp_path / "a.npy").read_bytes() == expected.getvalue()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_keeps_its_error_number() -> None:
    with pytest.raises(OSError, match="No space left on device") as caught:
        save_array(Path("/dev/full"), np.arange(100_000))
    assert caught.value.errno == errno.ENOSPC
