from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightgc2n.data.dataset import Domain
from lightgc2n.data.formats.file_formats import detect
from lightgc2n.data.formats.rows import Tally
from lightgc2n.data.formats.sequences import read_sequences, read_two_domains
from lightgc2n.errors import DataError


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")


def read(path: Path, form: str = "auto", tally: Tally | None = None) -> dict[str, Any]:
    return plain(read_sequences(detect(path, form), tally or Tally()))


def read_mixed(folder: Path, tally: Tally | None = None) -> dict[str, Any]:
    return plain(read_two_domains(detect(folder), tally or Tally()))


def plain(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in content.items()}


def test_logs(tmp_path: Path) -> None:
    write(tmp_path, log__tsv="a\t007 7 007\nb\t7\n")
    assert read(tmp_path / "log.tsv") == {
        "kind": "logs",
        "accounts": ["a", "b"],
        "items": ["007", "7"],
        "domains": [Domain("all", 0, 2)],
        "sequence_accounts": [0, 1],
        "offsets": [0, 3, 4],
        "events": [0, 1, 0, 1],
        "notes": [],
    }


def test_an_account_with_several_lines_keeps_them_apart(tmp_path: Path) -> None:
    write(tmp_path, log__tsv="a\tx y\nb\tx\na\tz\n")
    content = read(tmp_path / "log.tsv")
    assert content["sequence_accounts"] == [0, 1, 0]
    assert content["offsets"] == [0, 2, 3, 4]
    assert content["notes"] == ["some accounts have several lines, and their order is unknown"]


def test_windows_with_dictionaries(tmp_path: Path) -> None:
    write(
        tmp_path,
        train_data__txt="b\ty\tx\t\nb\tx\ty\tz\t\n",
        test_data__txt="a\tz\tx\t\n",
        item_dict__txt="1\ty\n0\tx\n2\tunseen\n",
        user_dict__txt="0\ta\t11\n1\tb\t21\n2\tc\t5\n",
    )
    content = read(tmp_path)
    assert content["kind"] == "windows"
    assert content["accounts"] == ["a", "b", "c"]  # as the dictionary numbers them
    assert content["items"] == ["x", "y", "unseen", "z"]  # and what it does not know comes after
    assert content["sequence_accounts"] == [1, 1, 0]
    assert content["offsets"] == [0, 2, 5, 7]
    assert content["events"] == [1, 0, 0, 1, 3, 3, 0]
    assert content["parts"] == [0, 0, 1]


def test_sessions_by_hand(tmp_path: Path) -> None:
    write(
        tmp_path,
        traindata_sess__txt="a\tV1\tE1\tE2\tV2\nb\tE2\tV1\tE1\tV1\n",
        testdata_sess__txt="a\tV3\tE1\tE3\tV1\n",
    )
    content = read(tmp_path)
    assert content["kind"] == "windows"
    assert content["items"] == ["E1", "E2", "E3", "V1", "V2", "V3"]
    assert content["domains"] == [Domain("E", 0, 3), Domain("V", 3, 6)]
    assert content["offsets"] == [0, 2, 4, 6]
    assert content["events"] == [3, 0, 1, 3, 5, 0]  # V1 E1 | E2 V1 | V3 E1
    assert content["targets"] == [[1, 4], [0, 3], [2, 3]]  # E2 V2 | E1 V1 | E3 V1
    assert content["parts"] == [0, 0, 1]
    assert content["sequence_accounts"] == [0, 1, 0]


def test_sessions_of_more_than_two_domains(tmp_path: Path) -> None:
    write(tmp_path, testdata_sess__txt="a\tV1\tE1\tV2\nb\tX1\tE1\tX2\n")
    with pytest.raises(
        DataError, match=r"testdata_sess\.txt: expected items of two domains.*found the letters E, V, X"
    ):
        read(tmp_path)


def test_two_domains_by_hand(tmp_path: Path) -> None:
    write(
        tmp_path,
        E__tsv="a\tE1 E2 E3\nb\tE2 E1\n",
        V__tsv="b\tV2 V1\na\tV1 V1\nc\tV3 V2\n",
        mixed__tsv="a\tE1 V1 E2\nc\tV3\nb\tV2 E2\n",
    )
    content = read_mixed(tmp_path)
    assert content["accounts"] == ["a", "c", "b"]
    assert content["items"] == ["E1", "E2", "E3", "V1", "V3", "V2"]
    assert content["domains"] == [Domain("E", 0, 3), Domain("V", 3, 6)]
    assert content["offsets"] == [0, 3, 4, 6]
    assert content["events"] == [0, 3, 1, 4, 5, 1]  # E1 V1 E2 | V3 | V2 E2
    assert content["targets"] == [[2, 3], [-1, 5], [0, 3]]  # a: E3 V1, c: none V2, b: E1 V1


TWO_DOMAINS = {"E": "a\tE1 E2\n", "V": "a\tV1 V2\n", "mixed": "a\tV1 E1\n"}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("V", "a\tV1 E1\n", r"V\.tsv: expected items of this domain only, found one that another domain has"),
        ("mixed", "a\tV1 E1 X9\n", r"mixed\.tsv: the item 'X9' is in neither domain's file"),
        ("mixed", "a\tV1 E1 E2\n", r"mixed\.tsv: expected the events of E\.tsv in the same order"),
        ("mixed", "a\tV1\n", r"mixed\.tsv: expected the events of E\.tsv"),
        ("mixed", "b\tV1 E1\n", r"mixed\.tsv: expected the events of E\.tsv"),
        ("V", "a\tV1 V2\nb\tV1 V2\n", r"mixed\.tsv: expected the events of V\.tsv"),
        ("mixed", "a\tV1\na\tE1\n", r"mixed\.tsv: expected one line per account"),
        ("E", "a\tE1\na\tE2\n", r"E\.tsv: expected one line per account"),
        ("E", "", r"E\.tsv: expected logs, found an empty file"),
        ("E", "a\n", r"E\.tsv:1: column items: expected an account, a tab and at least one item"),
    ],
)
def test_two_domains_that_do_not_fit(tmp_path: Path, file: str, text: str, message: str) -> None:
    write(tmp_path, **{f"{name}__tsv": content for name, content in (TWO_DOMAINS | {file: text}).items()})
    with pytest.raises(DataError, match=message):
        read_mixed(tmp_path)


def test_a_file_of_bad_lines_only(tmp_path: Path) -> None:
    write(tmp_path, log__tsv="a\nb\n")
    with pytest.raises(DataError, match=r"log\.tsv: expected logs, found bad lines only"):
        read(tmp_path / "log.tsv", "logs", Tally(tmp_path))
