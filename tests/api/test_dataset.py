"""Datasets from frames and paths: the same data whatever it comes from, and errors that name row and column."""

import copy
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import lightgc2n as lg
from lightgc2n.api import storage
from lightgc2n.data.forget_dataset import forget_in_dataset
from tests.api.world import ACCOUNTS, COLUMNS, EVENTS, arrow_frame, data, pandas_frame, polars_frame


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The checksum of the same rows, imported by the command from a CSV file."""
    folder = tmp_path_factory.mktemp("imported")
    pandas_frame().to_csv(folder / "log.csv", index=False)
    words = [sys.executable, "-m", "lightgc2n", "import", "log.csv", "--out", "data"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return lg.Dataset.load(folder / "data").checksum


def times(kind: str) -> pd.DataFrame:
    """The frame with its times written in another way."""
    frame = pandas_frame()
    seconds = frame["timestamp"]
    moments = pd.to_datetime(seconds, unit="s")
    frame["timestamp"] = {
        "milliseconds": seconds * 1000,
        "floats": seconds.astype(float),
        "datetimes": moments,
        "nanoseconds": moments.astype("datetime64[ns]"),
        "time zone": moments.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"),
        "texts": moments.dt.strftime("%Y-%m-%d %H:%M:%S"),
        "texts with a zone": moments.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo").astype(str),
        "Python datetimes": pd.Series([one.to_pydatetime() for one in moments], dtype=object),
    }[kind]
    return frame


@pytest.mark.parametrize("make", [pandas_frame, polars_frame, arrow_frame, lambda: polars_frame().lazy()])
def test_every_frame_gives_the_data_of_the_command(make: Callable[[], Any], imported: str) -> None:
    assert lg.Dataset.from_frame(make(), **COLUMNS, progress=False).checksum == imported


def test_an_arrow_table_gives_the_data_of_the_command(imported: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(polars_frame().to_dict(as_series=False))
    assert lg.Dataset.from_frame(table, **COLUMNS, progress=False).checksum == imported


@pytest.mark.parametrize(
    "kind",
    [
        "milliseconds",
        "floats",
        "datetimes",
        "nanoseconds",
        "time zone",
        "texts",
        "texts with a zone",
        "Python datetimes",
    ],
)
def test_times_of_every_kind_are_the_same_times(kind: str, imported: str) -> None:
    assert lg.Dataset.from_frame(times(kind), **COLUMNS, progress=False).checksum == imported


def test_polars_times_with_a_zone_are_the_same_times(imported: str) -> None:
    zoned = pl.from_epoch("timestamp").dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin")
    assert lg.Dataset.from_frame(polars_frame().with_columns(zoned), progress=False).checksum == imported


def test_categories_are_ids(imported: str) -> None:
    frame = pandas_frame().astype({"user_id": "category", "item_id": "category"})
    assert lg.Dataset.from_frame(frame, progress=False).checksum == imported


def test_days_are_times() -> None:
    frame = pl.DataFrame({"user": ["a", "a"], "item": ["x", "y"], "date": [date(2024, 1, 2), date(2024, 1, 1)]})
    made = lg.Dataset.from_frame(frame, progress=False).to_frame("polars")
    assert made["item"].to_list() == ["y", "x"]
    assert made["time"].to_list() == [datetime(2024, 1, 1), datetime(2024, 1, 2)]


def test_without_times_the_rows_are_in_order() -> None:
    frame = pd.DataFrame({"user_id": [7, 8, 7, 7], "item_id": [3, 1, 2, 1]})
    made = lg.Dataset.from_frame(frame, progress=False)
    assert made.to_frame("pandas").to_dict("list") == {"account": ["7", "7", "7", "8"], "item": ["3", "2", "1", "1"]}
    assert "events keep the order of the rows" in " ".join(made.notes)


def test_columns_of_any_name() -> None:
    frame = pandas_frame().set_axis([0, "what", "when"], axis=1)
    made = lg.Dataset.from_frame(frame, account="0", item="what", time="when", progress=False)
    assert made.checksum == data().checksum


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_missing_id_names_row_and_column(missing: Any) -> None:
    frame = pandas_frame().astype(object)
    frame.loc[5, "item_id"] = missing
    with pytest.raises(
        lg.DataError, match=r"^frame: row 5 \(counted from 0\): column item_id: expected an id"
    ) as actual:
        lg.Dataset.from_frame(frame, **COLUMNS, progress=False)
    assert "skip_bad=True" in str(actual.value)
    assert len(lg.Dataset.from_frame(frame, **COLUMNS, skip_bad=True, progress=False)) == ACCOUNTS * EVENTS - 1


@pytest.mark.parametrize(
    ("frame", "column", "row"),
    [
        (pd.DataFrame({"user": [1.0, np.nan], "item": ["x", "y"]}), "user", 1),
        (pd.DataFrame({"user": pd.array([None, 4], "Int64"), "item": ["x", "y"]}), "user", 0),
        (pl.DataFrame({"user": [1.0, float("nan")], "item": ["x", "y"]}), "user", 1),
        (pl.DataFrame({"user": ["a", "b"], "item": ["x", ""]}), "item", 1),
        (pd.DataFrame({"user": ["a"], "item": ["x"], "time": [pd.NaT]}), "time", 0),
    ],
)
def test_missing_values_of_every_type(frame: Any, column: str, row: int) -> None:
    with pytest.raises(lg.DataError, match=rf"frame: row {row} \(counted from 0\): column {column}: expected"):
        lg.Dataset.from_frame(frame, progress=False)


def test_a_wrong_column_suggests_the_nearest() -> None:
    with pytest.raises(lg.DataError, match=r"no column 'user' for account=\. Did you mean 'user_id'\?"):
        lg.Dataset.from_frame(pandas_frame(), account="user", progress=False)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ([1, 2], r"expected a data frame of pandas or polars, or an Arrow table, found list"),
        (pandas_frame().iloc[:0], r"frame: expected events, found none"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), r"two columns have the same name"),
        (pd.DataFrame({"user": ["a"], "item": [["x"]]}), r"column item: expected one value per row, found a list"),
        (pl.DataFrame({"user": ["a"], "item": [["x"]]}), r"column item: expected one value per row, found List"),
    ],
)
def test_what_is_no_log_is_refused(frame: Any, message: str) -> None:
    with pytest.raises(lg.DataError, match=message):
        lg.Dataset.from_frame(frame, progress=False)


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    made = lg.Dataset.from_frame(pandas_frame(), **COLUMNS, progress=False)
    assert made.save(tmp_path / "saved").folder == tmp_path / "saved"
    for again in (lg.Dataset.load(tmp_path / "saved"), lg.Dataset.from_path(tmp_path / "saved")):
        assert again.checksum == made.checksum
    with pytest.raises(lg.OutputError, match=r"exists already\. Choose another out=, or replace it with force=True"):
        made.save(tmp_path / "saved")
    assert made.save(tmp_path / "saved", force=True).checksum == data().checksum


def test_it_is_not_saved_into_itself(tmp_path: Path) -> None:
    """The copy used to hold a copy of itself, and so on, until the names were too long or the disk was full."""
    saved = lg.Dataset.from_frame(pandas_frame(), **COLUMNS, progress=False).save(tmp_path / "saved")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(lg.OutputError, match=r"copy is inside .*saved, .* Choose another out="):
        saved.save(tmp_path / "saved" / "copy")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dataset_that_changes_while_it_is_saved_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if `forget` had replaced the folder in the midst of the copy."""
    made, copytree = lg.Dataset.from_frame(pandas_frame(), **COLUMNS, progress=False), shutil.copytree

    def mixed(source: Path, new: Path, **options: Any) -> None:
        copytree(source, new, **options)
        (new / "items.txt").write_text("of other data\n")

    monkeypatch.setattr("lightgc2n.api.storage.shutil.copytree", mixed)
    with pytest.raises(lg.OutputError, match=r"was changed while it was saved\. Try again"):
        made.save(tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []
    assert made.is_temporary


def test_accounts_forgotten_at_the_last_moment_stay_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`forget` may end after save was called and before save is the only writer."""
    saved = lg.Dataset.from_frame(pandas_frame(), **COLUMNS, progress=False).save(tmp_path / "saved")
    new_folder = storage.new_folder

    def forget_first(out: Path, *more: Any, **options: Any) -> Any:
        forget_in_dataset(out, ["user1"])
        return new_folder(out, *more, **options)

    other = lg.Dataset.from_frame(pandas_frame(), **COLUMNS, progress=False)
    monkeypatch.setattr(storage, "new_folder", forget_first)
    with pytest.raises(lg.OutputError, match="has a list of forgotten accounts"):
        other.save(saved.folder, force=True)
    assert "user1" not in lg.Dataset.load(saved.folder).accounts


def test_only_files_of_the_dataset_are_saved(tmp_path: Path) -> None:
    saved = lg.Dataset.from_frame(pandas_frame(), **COLUMNS, progress=False).save(tmp_path / "saved")
    own = {path.name for path in saved.folder.iterdir()}
    (saved.folder / "video.mp4").write_text("mine")
    (saved.folder / "drafts").mkdir()
    (saved.folder / ".lightgc2n-tmp-0badcafe-events.npy").write_text("half")
    assert {path.name for path in saved.save(tmp_path / "copy").folder.iterdir()} == own
    assert (tmp_path / "saved" / "video.mp4").read_text() == "mine"


def test_a_path_is_read_like_the_command_does(tmp_path: Path, imported: str) -> None:
    pandas_frame().to_csv(tmp_path / "log.csv", index=False)
    assert lg.Dataset.from_path(tmp_path / "log.csv", progress=False).checksum == imported


def test_it_removes_its_folder_and_nothing_else() -> None:
    made = lg.Dataset.from_frame(pandas_frame(), **COLUMNS, progress=False)
    folder = made.folder
    other = folder.parent / "mine.txt"
    other.write_text("mine")
    del made
    gc.collect()
    assert not folder.exists()
    assert other.read_text() == "mine"
    other.unlink()
    os.rmdir(other.parent)


@pytest.mark.parametrize("level", ["folder", "parent"])
def test_a_folder_that_was_moved_and_linked_stays(level: str, tmp_path: Path) -> None:
    made = lg.Dataset.from_frame(pandas_frame(), **COLUMNS, progress=False)
    place = made.folder if level == "folder" else made.folder.parent
    shutil.move(place, tmp_path / "kept")
    place.symlink_to(tmp_path / "kept")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    del made
    gc.collect()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before != {}
    place.unlink()
    if level == "folder":
        os.rmdir(place.parent)


def test_a_copy_keeps_the_folder() -> None:
    made = lg.Dataset.from_frame(pandas_frame(), **COLUMNS, progress=False)
    folder, copied = made.folder, copy.deepcopy(made)
    del made
    gc.collect()
    assert lg.Dataset.load(copied.folder).checksum == data().checksum
    del copied
    gc.collect()
    assert not folder.exists()


def test_the_text_names_the_dataset_and_its_counts() -> None:
    text = f"Dataset 'frame': {ACCOUNTS} accounts, 15 items, {ACCOUNTS * EVENTS} events, 2024-01-01 to 2024-01-09"
    assert repr(data()) == f"<{text}>"
    assert "account from &#x27;user_id&#x27;" in data()._repr_html_()
    assert len(data()) == ACCOUNTS * EVENTS


def test_generated_households_have_titles_and_members() -> None:
    made = lg.generate(accounts=50, seed=3, settings={"weeks": 4}, progress=False)
    frame = made.to_frame("pandas")
    assert list(frame) == ["account", "item", "time", "domain", "member"]
    assert set(frame["item"]) <= set(made.titles)
    assert made.checksum == lg.generate(accounts=50, seed=3, settings={"weeks": 4}, progress=False).checksum
    with pytest.raises(lg.SettingError, match=r"unknown setting 'week'\. Did you mean 'weeks'\?"):
        lg.generate(accounts=50, settings={"week": 4}, progress=False)
