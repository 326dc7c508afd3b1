import gzip
import os
from pathlib import Path

import pytest
import zstandard

from lightgc2n.data.formats.file_formats import detect
from lightgc2n.errors import DataError


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(b"x\n")


@pytest.mark.parametrize(
    ("name", "first_line", "expected"),
    [
        ("a.csv", "user,item", "csv"),
        ("A.CSV", "user,item", "csv"),
        ("a.jsonl", "{}", "jsonl"),
        ("a.ndjson", "{}", "jsonl"),
        ("a.json", "{}", "jsonl"),
        ("a.pq", "", "parquet"),
        ("a.inter", "user_id:token\titem_id:token", "recbole"),
        ("a.tsv", "user\titem", "tsv"),
        ("a.txt", "User ID\tASIN\ttimestamp", "tsv"),
        ("a.tsv", "1\t2\t3", "tsv"),
        ("ratings.dat", "1::0120735::9::1362062307", "movietweetings"),
        ("a.tsv", "acc\tE1 V2 E3", "logs"),
        ("noending", "acc\tE1", "logs"),
        ("test.txt", "acc\tE1\tE2\tE3\t", "windows"),
        ("test.txt", "acc\tE1\tV2\tE3\tE4\tV5", "sessions"),
    ],
)
def test_one_file(tmp_path: Path, name: str, first_line: str, expected: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf\r\n\n" + first_line.encode() + b"\r\nmore\n")
    source = detect(path)
    assert (source.format, source.files) == (expected, {"all": path})
    assert detect(path, "logs").format == "logs"  # a format that is named is believed


def test_packed_files(tmp_path: Path) -> None:
    for name, pack in (("a.tsv.gz", gzip.compress), ("a.tsv.zst", zstandard.compress)):
        (tmp_path / name).write_bytes(pack(b"acc\tE1 V2\n"))
        assert detect(tmp_path / name).format == "logs"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"one two three\n", r"a\.txt:1: cannot detect the format from the first line 'one two three'"),
        ("a.txt", b"\x00\x01\n", r"'\\x00\\x01'.*format=, one of: csv, tsv"),
        ("a.txt", b"", r"a\.txt: the file is empty"),
        ("a.txt", b"\n\r\n", r"a\.txt: the file is empty"),
        ("a.txt.gz", b"no gzip", r"a\.txt\.gz: cannot be decompressed"),
    ],
)
def test_a_file_of_unknown_format_is_an_error(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message):
        detect(tmp_path / name)


def test_unknown_formats_and_paths(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"unknown format 'cvs'. Did you mean 'csv'"):
        detect(tmp_path, "cvs")
    with pytest.raises(DataError, match=r"no such file or folder"):
        detect(tmp_path / "missing.csv")


def test_a_pipe_needs_a_format(tmp_path: Path) -> None:
    pipe = tmp_path / "log.csv"
    os.mkfifo(pipe)
    for wanted in ("auto", "parquet"):
        with pytest.raises(DataError, match=r"log\.csv: a pipe can be read only once"):
            detect(pipe, wanted)
    assert detect(pipe, "csv").format == "csv"


def test_a_folder_of_two_domains(tmp_path: Path) -> None:
    touch(tmp_path, "E.tsv", "V.tsv", "mixed.tsv", "README.md", ".hidden.tsv")
    source = detect(tmp_path)
    assert source.format == "logs"
    assert {name: path.name for name, path in source.files.items()} == {
        "E": "E.tsv",
        "V": "V.tsv",
        "mixed": "mixed.tsv",
    }


def test_a_folder_of_windows(tmp_path: Path) -> None:
    touch(tmp_path, "test_data.txt", "item_dict.txt", "user_dict.txt")
    source = detect(tmp_path)
    assert source.format == "windows"
    assert list(source.files) == ["all"]
    assert [path.name for path in source.all_files()] == ["test_data.txt", "item_dict.txt", "user_dict.txt"]
    touch(tmp_path, "train_data.txt")
    assert list(detect(tmp_path).files) == ["train", "test"]


def test_a_folder_of_sessions(tmp_path: Path) -> None:
    touch(tmp_path, "testdata_sess.txt", "Vlist.txt")
    assert list(detect(tmp_path).files) == ["test"]
    touch(tmp_path, "validdata_sess.txt")
    source = detect(tmp_path)
    assert {part: path.name for part, path in source.files.items()} == {
        "train": "validdata_sess.txt",
        "test": "testdata_sess.txt",
    }
    assert source.notes == ["the training part was read from validdata_sess.txt"]
    touch(tmp_path, "traindata_sess.txt")
    assert detect(tmp_path).files["train"].name == "traindata_sess.txt"
    assert detect(tmp_path).notes == []


def test_a_folder_with_one_log(tmp_path: Path) -> None:
    touch(tmp_path, "movies.dat", "README.md")
    (tmp_path / "ratings.dat").write_bytes(b"1::2::3::4\n")
    assert detect(tmp_path).files == {"all": tmp_path / "ratings.dat"}
    touch(tmp_path, "more.csv.gz")
    with pytest.raises(
        DataError, match=r"expected one log file, found more\.csv\.gz, ratings\.dat\. Give the path of the file"
    ):
        detect(tmp_path)


def test_a_folder_without_a_log(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected one log file, found none"):
        detect(tmp_path)


def test_a_folder_of_another_format_than_named(tmp_path: Path) -> None:
    touch(tmp_path, "test_data.txt")
    with pytest.raises(DataError, match=r"format= is csv, but the folder holds windows. Give the path of the file"):
        detect(tmp_path, "csv")
    assert detect(tmp_path, "windows").format == "windows"
