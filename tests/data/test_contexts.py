"""The device of each event: kept where its column is named, carried by everything that copies data, never guessed."""

import json
from pathlib import Path

import polars as pl
import pytest

from lightgc2n.api.dataset import Dataset
from lightgc2n.data.contexts import CONTEXT_NAMES, CONTEXTS
from lightgc2n.data.dataset import load_dataset, verify_dataset
from lightgc2n.data.forget_dataset import forget_in_dataset
from lightgc2n.data.importing import ImportOptions, import_log
from lightgc2n.errors import DataError
from lightgc2n.synthetic.merged_accounts import SimulateOptions, simulate
from tests.cli.test_commands import run

LOG = "user,item,timestamp,device\na,1,1,tv\na,2,2,\nb,1,3,phone\nb,3,4,tv\nc,2,5,tablet\nc,1,6,tv\n"
KEPT = ["tv", None, "phone", "tv", "tablet", "tv"]


def imported(tmp_path: Path, text: str = LOG, name: str = "shop", **columns: str) -> Path:
    (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    import_log(tmp_path / f"{name}.csv", tmp_path / name, ImportOptions(columns=columns))
    return tmp_path / name


def values(folder: Path) -> list[str | None]:
    contexts = load_dataset(folder).contexts
    assert contexts is not None
    return [contexts.names[one] if one >= 0 else None for one in contexts.of_event.tolist()]


def test_a_named_column_is_kept_and_others_are_not(tmp_path: Path) -> None:
    folder = imported(tmp_path, context="device")
    assert values(folder) == KEPT
    assert load_dataset(folder).contexts.column == "device"  # type: ignore[union-attr]
    plain = load_dataset(imported(tmp_path, name="plain"))
    assert plain.contexts is None
    assert plain.checksum == load_dataset(folder).checksum  # a run fits the log with and without the column


def test_rows_that_are_sorted_and_left_out_keep_their_device(tmp_path: Path) -> None:
    rows = LOG.splitlines(keepends=True)
    shuffled = rows[0] + "".join(reversed(rows[1:])) + rows[1]
    (tmp_path / "log.csv").write_text(shuffled, encoding="utf-8")
    options = ImportOptions(columns={"context": "device"}, drop_duplicates=True)
    import_log(tmp_path / "log.csv", tmp_path / "shop", options)
    dataset = load_dataset(tmp_path / "shop")
    actual = dict(zip(zip([dataset.accounts[one] for one in dataset.sequence_accounts.repeat(dataset.lengths)],
                         [dataset.items[one] for one in dataset.events], strict=True), values(tmp_path / "shop"),
                     strict=True))  # fmt: skip
    assert actual == {("a", "1"): "tv", ("a", "2"): None, ("b", "1"): "phone", ("b", "3"): "tv", ("c", "2"): "tablet",
                     ("c", "1"): "tv"}  # fmt: skip


def test_a_missing_column_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(LOG, encoding="utf-8")
    done = run("import", tmp_path / "log.csv", "--context-column", "devise", "--out", tmp_path / "shop")
    assert done.returncode == 2
    assert "no column 'devise' for --context-column. Did you mean 'device'?" in done.stderr


def test_checksums_of_the_files_are_verified(tmp_path: Path) -> None:
    folder = imported(tmp_path, context="device")
    verify_dataset(folder)
    (folder / CONTEXT_NAMES).write_text("tv\nfone\ntablet\n", encoding="utf-8")
    with pytest.raises(DataError, match="Import it again"):
        verify_dataset(folder)
    (folder / CONTEXTS).unlink()
    with pytest.raises(DataError, match=r"contexts\.npy"):
        load_dataset(folder)


def test_a_dataset_of_an_earlier_version_loads(tmp_path: Path) -> None:
    folder = imported(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert "contexts" not in manifest
    assert load_dataset(folder).contexts is None


def test_forget_removes_the_events_and_unused_values(tmp_path: Path) -> None:
    folder = imported(tmp_path, context="device")
    forget_in_dataset(folder, ["c"])
    verify_dataset(folder)
    assert values(folder) == KEPT[:4]
    assert (folder / CONTEXT_NAMES).read_text(encoding="utf-8") == "tv\nphone\n"  # only c had a tablet


def test_simulate_carries_the_device_of_each_event(tmp_path: Path) -> None:
    folder = imported(tmp_path, context="device")
    simulate(load_dataset(folder), SimulateOptions(members="3", min_events=1), tmp_path / "merged")
    assert values(tmp_path / "merged") == KEPT  # the times of the three users do not interleave


def test_from_python(tmp_path: Path) -> None:
    frame = pl.read_csv(LOG.encode())
    data = Dataset.from_frame(frame, context="device")
    assert data.arrays.contexts is not None
    assert data.to_frame("polars")["context"].to_list() == KEPT
    assert Dataset.from_frame(frame).arrays.contexts is None


def test_one_domain(tmp_path: Path) -> None:
    log = "user,item,timestamp,domain,device\na,1,1,x,tv\na,2,2,y,phone\na,3,3,x,tablet\n"
    dataset = load_dataset(imported(tmp_path, log, context="device")).only("x")
    assert dataset.contexts is not None
    assert (dataset.contexts.names, dataset.contexts.of_event.tolist()) == (["tv", "tablet"], [0, 1])
