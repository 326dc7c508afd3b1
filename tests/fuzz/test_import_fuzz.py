"""Whatever the bytes, an import ends in a sound dataset or in an error a person can act on, and leaves no rest."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import PACKING, SEEDS, Case, case

from lightgc2n.data.dataset import load_dataset, verify_dataset
from lightgc2n.data.formats import lines
from lightgc2n.data.formats.columns import EARLIEST, LATEST
from lightgc2n.data.formats.event_tables import TableReader
from lightgc2n.data.formats.file_formats import TABLES
from lightgc2n.data.importing import ImportOptions, import_log
from lightgc2n.data.members import load_members
from lightgc2n.errors import LightGC2NError

KINDS = list(SEEDS)


def check_dataset(folder: Path, skip_bad: bool) -> None:
    """Every number of the dataset points at something, and every count is right."""
    verify_dataset(folder)
    dataset, members = load_dataset(folder), load_members(folder)
    counts, events = dataset.manifest["counts"], dataset.events
    assert dataset.offsets[0] == 0
    assert dataset.offsets[-1] == len(events) == counts["events"] > 0
    assert (dataset.lengths >= 0).all()
    assert len(dataset.offsets) - 1 == len(dataset.sequence_accounts) == counts["sequences"]
    assert events.min() >= 0
    assert events.max() < len(dataset.items) == counts["items"]
    assert dataset.sequence_accounts.min() >= 0
    assert dataset.sequence_accounts.max() < len(dataset.accounts) == counts["accounts"] == len(set(dataset.accounts))
    starts = [domain.start for domain in dataset.domains]
    assert [*starts, len(dataset.items)] == [0, *(domain.stop for domain in dataset.domains)]
    for domain in dataset.domains:
        assert len(set(dataset.items[domain.start : domain.stop])) == len(domain)
    for one in (*dataset.accounts, *dataset.items):
        assert one
        assert not any(sign < " " or sign == "\x7f" for sign in one)
    sequence = np.repeat(np.arange(len(dataset.lengths)), dataset.lengths)
    if dataset.times is not None:
        assert len(dataset.times) == len(events)
        assert EARLIEST <= dataset.times.min() <= dataset.times.max() <= LATEST
        assert (np.diff(dataset.times)[np.diff(sequence) == 0] >= 0).all()
    if dataset.targets is not None:
        for domain, target in zip(dataset.domains, dataset.targets.T, strict=True):
            assert ((target == -1) | ((target >= domain.start) & (target < domain.stop))).all()
    if dataset.parts is not None:
        assert set(dataset.parts.tolist()) <= {0, 1}
        assert len(dataset.parts) == counts["sequences"]
    if members is not None:
        assert len(members.of_event) == len(events)
        assert -1 <= members.of_event.min() <= members.of_event.max() < len(members.names)
    per_account = np.bincount(dataset.sequence_accounts[sequence], minlength=len(dataset.accounts))
    assert counts["accounts_with_events"] == (per_account > 0).sum()
    assert counts["accounts_with_one_event"] == (per_account == 1).sum()
    rejected = folder / "rejected.tsv"
    listed = rejected.read_text(encoding="utf-8").split("\n")[1:-1] if rejected.exists() else []
    assert len(listed) == counts["rejected_rows"]
    assert all(line.count("\t") == 4 for line in listed)
    assert skip_bad or not listed
    if dataset.manifest["options"]["format"] in TABLES:
        assert counts["rows"] == len(events) + len(listed)


def check_rows(source: Path, manifest: dict[str, Any]) -> None:
    """The rows of a text file are its lines, without empty ones and the header; in CSV a row may have several."""
    form = manifest["options"]["format"]
    if source.is_dir() or form == "parquet":
        return
    unpack, _ = PACKING.get(source.suffix, (bytes, bytes))
    lines = unpack(source.read_bytes()).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    most = sum(line not in (b"", b"\r") for line in lines) - (form in ("csv", "tsv", "recbole"))
    rows = manifest["counts"]["rows"]
    assert rows == most or (form == "csv" and rows < most and any("line breaks" in note for note in manifest["notes"]))


def outcome(source: Path, options: ImportOptions, out: Path) -> str:
    """The checksum of the dataset, or the error; any other exception fails the test."""
    before = sorted(out.parent.iterdir())
    try:
        checksum = import_log(source, out, options)["checksum"]
    except LightGC2NError as problem:
        assert sorted(out.parent.iterdir()) == before
        return str(problem)
    assert sorted(out.parent.iterdir()) == sorted([*before, out])
    check_dataset(out, options.skip_bad)
    check_rows(source, load_dataset(out).manifest)
    return str(checksum)


def check(number: int, folder: Path) -> None:
    damaged: Case = case(number)
    (folder / "in").mkdir(parents=True)
    source = damaged.write(folder / "in")
    result = outcome(source, damaged.options, folder / "out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableReader, "_fast", lambda *_: None)
        patch.setattr(lines, "_fast", lambda *_: None)
        assert outcome(source, damaged.options, folder / "slow") == result


def check_many(numbers: range, folder: Path) -> None:
    for number in numbers:
        try:
            check(number, folder / str(number))
        except BaseException as problem:
            problem.add_note(f"This is number {number}: see tests/fuzz/mutations.py.")
            raise


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(tmp_path: Path, kind: str) -> None:
    first, step = KINDS.index(kind), len(KINDS)
    check_many(range(first, 300, step), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files(tmp_path: Path, kind: str) -> None:
    first, step = KINDS.index(kind), len(KINDS)
    check_many(range(300 + (first - 300) % step, 10_300, step), tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_files(tmp_path: Path, kind: str) -> None:
    (tmp_path / "in").mkdir()
    source = Case(kind, SEEDS[kind], ImportOptions()).write(tmp_path / "in")
    result = outcome(source, ImportOptions(), tmp_path / "out")
    assert len(result) == 64, result
