"""Logs as spreadsheet programs write them: other separators, dates and encodings, and rows that are no viewings."""

import json
from datetime import timedelta
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

import lightgc2n
from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.import_preview import preview_import
from lightgc2n.data.importing import ImportOptions, import_log
from lightgc2n.errors import DataError, SettingError
from tests.cli.test_commands import run

GERMAN = """Kundennummer;Sendung;Gesehen am;Aktion;Note
K1;Käse;31.12.2023 20:15;gesehen;4
K2;Brücke;01.02.2024 06:05;gesehen;2,5
K1;Brücke;30.12.2023 10:00;gesehen;5
K1;Köln;29.12.2023 10:00;angezeigt;
"""
COLUMNS = {"account": "Kundennummer", "item": "Sendung", "time": "Gesehen am"}
FORMAT = "%d.%m.%Y %H:%M"


def german(folder: Path, name: str = "log.csv", encoding: str = "latin-1", sign: str = ";") -> Path:
    (folder / name).write_text(GERMAN.replace(";", sign), encoding=encoding)
    return folder / name


def test_semicolons_german_dates_and_latin_1(tmp_path: Path) -> None:
    options = ImportOptions(columns=COLUMNS, time_format=FORMAT, encoding="latin-1", where="Aktion = gesehen")
    manifest = import_log(german(tmp_path), tmp_path / "out", options)
    data = load_dataset(tmp_path / "out")
    assert [data.items[item] for item in data.events] == ["Brücke", "Käse", "Brücke"]  # K1 by time, then K2
    # 2023-12-30 10:00, 2023-12-31 20:15 and 2024-02-01 06:05 in seconds since 1970
    assert [int(time) // 10**6 for time in data.times] == [1703930400, 1704053700, 1706767500]
    assert manifest["counts"] | {"rows": 4, "filtered_rows": 1, "rejected_rows": 0} == manifest["counts"]
    assert "1 of 4 rows left out: they do not pass 'Aktion = gesehen'" in manifest["notes"]


@pytest.mark.parametrize("sign", [";", "\t", "|", ","])
@pytest.mark.parametrize("name", ["log.csv", "log.txt", "log.tsv"])
def test_separators_are_found_whatever_the_columns_are_called(tmp_path: Path, sign: str, name: str) -> None:
    text = "Kunde;Sendung;Tag;Ort\nK1;a;2024-01-01;x y\nK1;b;2024-01-02;z\n".replace(";", sign)
    (tmp_path / name).write_text(text)
    options = ImportOptions(columns={"account": "Kunde", "item": "Sendung", "time": "Tag"})
    assert import_log(tmp_path / name, tmp_path / "out", options)["counts"]["events"] == 2


def test_a_decimal_comma_does_not_hide_the_semicolon(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("Kunde;Sendung;Note\nK1;a;3,5\nK1;b;4,0\n")
    options = ImportOptions(columns={"account": "Kunde", "item": "Sendung"}, where="Note >= 3.75")
    assert import_log(tmp_path / "log.csv", tmp_path / "out", options)["counts"]["events"] == 1


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252", "utf-8-sig"])
def test_any_encoding_gives_the_same_dataset(tmp_path: Path, encoding: str) -> None:
    expected = import_log(
        german(tmp_path, "a.csv", "utf-8"), tmp_path / "a", ImportOptions(columns=COLUMNS, time_format=FORMAT)
    )
    options = ImportOptions(columns=COLUMNS, time_format=FORMAT, encoding=encoding)
    manifest = import_log(german(tmp_path, "b.csv", encoding), tmp_path / "b", options)
    assert manifest["checksum"] == expected["checksum"]


def test_another_encoding_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"log\.csv:2: expected UTF-8, found the byte 0xe4 .*encoding=, such as cp1252"):
        import_log(german(tmp_path), tmp_path / "out", ImportOptions(columns=COLUMNS, time_format=FORMAT))
    with pytest.raises(DataError, match=r"or latin-1\. If only this row is broken, import with skip_bad=True, which"):
        import_log(german(tmp_path), tmp_path / "out", ImportOptions(columns=COLUMNS, time_format=FORMAT))
    german(tmp_path, "wide.csv", "utf-16")
    with pytest.raises(DataError, match="Give the file's encoding=, such as"):
        import_log(tmp_path / "wide.csv", tmp_path / "out", ImportOptions())
    with pytest.raises(SettingError, match="such as latin-1, cp1252 or utf-16, found 'latein'"):
        import_log(german(tmp_path), tmp_path / "out", ImportOptions(encoding="latein"))
    with pytest.raises(DataError, match="cannot be read as ascii"):
        import_log(german(tmp_path), tmp_path / "out", ImportOptions(encoding="ascii"))


@pytest.mark.parametrize(
    ("first", "second", "advice"),
    [
        ("31.12.2023 20:15", "01.02.2023 10:00", "found '31.12.2023 20:15'. Give time_format= '%d.%m.%Y %H:%M'."),
        ("12/31/2023", "01/02/2023", "found '12/31/2023'. Give time_format= '%m/%d/%Y'."),
        ("01/02/2024", "03/04/2024", "'%d/%m/%Y' if the day comes first, '%m/%d/%Y' if the month does."),
        ("01/02/2024 10:00:01", "03/04/2024 10:00:01", "'%d/%m/%Y %H:%M:%S' if the day comes first"),
    ],
)
def test_dates_that_need_a_format_name_it(tmp_path: Path, first: str, second: str, advice: str) -> None:
    (tmp_path / "log.csv").write_text(f"user,item,date\na,x,{second}\na,y,{first}\n")
    with pytest.raises(DataError) as caught:
        import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions())
    assert str(caught.value).startswith(f"{tmp_path / 'log.csv'}: column date: expected ISO dates or numbers")
    assert advice in str(caught.value)


def test_a_date_that_does_not_fit_the_format_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item,date\na,x,31.12.2023\na,y,2023-12-31\n")
    with pytest.raises(DataError, match=r"log\.csv:3: column date: expected a time as '%d\.%m\.%Y' within"):
        import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions(time_format="%d.%m.%Y"))


@pytest.mark.parametrize("form", ["%H:%M", "%d.%m", "dd.mm.yyyy"])
def test_a_format_without_a_date_is_refused(tmp_path: Path, form: str) -> None:
    with pytest.raises(SettingError, match="expected a format with year, month and day"):
        import_log(german(tmp_path), tmp_path / "out", ImportOptions(time_format=form))


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("n >= 4", "bc"), ("n>4", "c"), ("n < 4", "a"), ("n<=4", "ab"), ("n = 4", "b"), ("n == 4.0", "b"),
        ("n != 4", "acd"), ("what = watch", "ab"), ("what!='watch'", "cd"), ("user = u", "abcd"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_one_comparison_keeps_rows(tmp_path: Path, where: str, kept: str, suffix: str) -> None:
    rows = [("u", "a", 1, "watch"), ("u", "b", 4, "watch"), ("u", "c", 4.5, "skip"), ("u", "d", None, "like")]
    path = tmp_path / f"log.{suffix}"
    if suffix == "csv":
        lines = [",".join("" if value is None else str(value) for value in row) for row in rows]
        path.write_text("\n".join(["user,item,n,what", *lines]))
    elif suffix == "jsonl":
        path.write_text(
            "\n".join(json.dumps(dict(zip(("user", "item", "n", "what"), row, strict=True))) for row in rows)
        )
    else:
        import polars as pl

        pl.DataFrame(rows, schema=["user", "item", "n", "what"], orient="row", strict=False).write_parquet(path)
    import_log(path, tmp_path / "out", ImportOptions(where=where))
    data = load_dataset(tmp_path / "out")
    assert "".join(data.items[item] for item in data.events) == kept


def test_a_row_that_is_left_out_is_not_checked_and_one_that_cannot_be_compared_is_bad(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item,n\n,x,1\na,y,5\na,z,many\n")
    manifest = import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions(where="n > 2", skip_bad=True))
    assert manifest["counts"] | {"rows": 3, "filtered_rows": 1, "rejected_rows": 1} == manifest["counts"]
    assert "expected a number for '>', found 'many'" in (tmp_path / "out/rejected.tsv").read_text()


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("rating", "expected one comparison"),
        ("a > 1 and b > 2", "expected one comparison"),
        ("n > x", "expected a number after >"),
        ("nn > 2", "no column 'nn' for where=. Did you mean 'n'?"),
        ("n > 9", r"expected events that pass where= 'n > 9', found none; the column holds, for example, '5'."),
    ],
)
def test_a_comparison_that_cannot_be_used(tmp_path: Path, where: str, problem: str) -> None:
    (tmp_path / "log.csv").write_text("user,item,n\na,y,5\n")
    with pytest.raises((DataError, SettingError)) as caught:
        import_log(tmp_path / "log.csv", tmp_path / "out", ImportOptions(where=where))
    assert problem in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_preview_writes_nothing_and_counts_what_would_be_skipped(tmp_path: Path) -> None:
    path = german(tmp_path)
    path.write_bytes(path.read_bytes() + b"K3;x;gestern;gesehen;1\n")
    options = ImportOptions(columns=COLUMNS, time_format=FORMAT, encoding="latin-1", where="Aktion=gesehen")
    preview = preview_import(path, options)
    assert preview.columns == COLUMNS
    assert preview.unused == ["Aktion", "Note"]
    assert preview.first[0] == {"account": "K1", "item": "Käse", "time": "2023-12-31 20:15:00"}
    assert preview.counts == {"rows": 5, "filtered_rows": 1, "rejected_rows": 1}
    assert preview.bad == [
        f"{path}:6: column Gesehen am: expected a time as '{FORMAT}' within the years 1900 to 2262, found 'gestern'"
    ]
    assert "fields separated by ';'" in preview.notes
    assert [file.name for file in tmp_path.iterdir()] == ["log.csv"]


def test_a_dry_run_ends_with_what_to_do_about_bad_rows(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item\na,x\na,\n")
    stops = run("import", tmp_path / "log.csv", "--dry-run").stdout
    assert "A bad row stops the import: correct it, or give --skip-bad, which lists bad rows in rejected.tsv." in stops
    assert stops.endswith("Nothing was written. Then import the log with the same options and --out DIR.\n")
    skips = run("import", tmp_path / "log.csv", "--dry-run", "--skip-bad").stdout
    assert "--skip-bad: the import would skip bad rows and list them in rejected.tsv." in skips
    assert skips.endswith("Nothing was written. Import the log with the same options and --out DIR.\n")


def test_a_preview_suggests_another_encoding(tmp_path: Path) -> None:
    options = ImportOptions(columns=COLUMNS, time_format=FORMAT)
    hint = "some rows are not UTF-8: give the file's --encoding (in Python: encoding=), such as cp1252 or latin-1"
    assert hint in preview_import(german(tmp_path), options).notes
    assert hint not in preview_import(german(tmp_path, "b.csv", "utf-8"), options).notes


def test_a_preview_names_values_where_no_row_passes_the_filter(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item,event\na,x,play\na,y,impression\na,y,play\nb,x,\n")
    preview = preview_import(tmp_path / "log.csv", ImportOptions(where="event = paly"))
    assert "no row passes 'event = paly'; the column holds, for example, 'play', 'impression'" in preview.notes
    with (tmp_path / "log.csv").open("a") as log:
        log.write("b,y,play,1\n")  # a bad row does not hide the values
    preview = preview_import(tmp_path / "log.csv", ImportOptions(where="event = paly"))
    assert preview.counts["rejected_rows"] == 1
    assert "no good row passes 'event = paly'; the column holds, for example, 'play', 'impression'" in preview.notes
    done = run("import", tmp_path / "log.csv", "--where", "event=paly", "--dry-run")
    assert done.stdout.endswith("Nothing was written.\n")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_columns_that_rows_may_be_filtered_by_are_named(tmp_path: Path, suffix: str) -> None:
    frame = pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "event": ["play", "seen"], "Rating": [5, 1]})
    write = frame.write_csv if suffix == "csv" else frame.write_parquet
    write(tmp_path / f"log.{suffix}")
    hint = (
        "columns with few values: 'event' ('play', 'seen'); 'Rating' ('5', '1'). If one tells what happened, "
        "leave out rows that were only shown or not liked with --where (in Python: where=)"
    )
    assert hint in preview_import(tmp_path / f"log.{suffix}", ImportOptions()).notes
    assert hint not in preview_import(tmp_path / f"log.{suffix}", ImportOptions(where="event=play")).notes


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_with_few_values_is_named_in_any_language(tmp_path: Path, suffix: str) -> None:
    rows = 60
    frame = pl.DataFrame(
        {
            "user": [f"u{row % 7}" for row in range(rows)],
            "item": [f"i{row % 9}" for row in range(rows)],
            "Vorgang": ["gesehen" if row % 3 else "angezeigt" for row in range(rows)],  # 40 and 20
            "Nummer": list(range(rows)),  # too many values
            "Land": ["AT"] * rows,  # one value filters nothing
        }
    )
    write = frame.write_csv if suffix == "csv" else frame.write_parquet
    write(tmp_path / f"log.{suffix}")
    notes = preview_import(tmp_path / f"log.{suffix}", ImportOptions()).notes
    assert any(note.startswith("columns with few values: 'Vorgang' ('gesehen', 'angezeigt'). If") for note in notes)


def test_of_many_columns_with_few_values_the_first_are_named(tmp_path: Path) -> None:
    flags = {f"flag{number}": ["yes", "no"] * 20 for number in range(15)}
    frame = pl.DataFrame({"user": ["a", "b"] * 20, "item": ["x", "y"] * 20} | flags)
    frame.write_csv(tmp_path / "log.csv")
    notes = preview_import(tmp_path / "log.csv", ImportOptions()).notes
    hint = next(note for note in notes if note.startswith("columns with few values: 'flag0' ('yes', 'no'); 'flag1' ("))
    assert "'flag11' ('yes', 'no') and 3 more. If one tells what happened, " in hint


def test_hints_read_no_nested_column_of_a_frame(tmp_path: Path) -> None:
    rows = {"user": ["a", "a"], "item": ["x", "y"], "tags": [["p"], ["q"]], "seen": ["2024-01-01", "2024-01-02"]}
    for frame in (pl.DataFrame(rows), pd.DataFrame(rows)):
        data = lightgc2n.Dataset.from_frame(frame, account="user", item="item")
        assert any("column 'seen' looks like times" in note for note in data.arrays.manifest["notes"])


def test_hints_read_no_column_whose_type_has_no_text(tmp_path: Path) -> None:
    rows = {"user": ["a", "b"], "item": ["x", "y"], "watched": 2 * [timedelta(minutes=3)], "image": [b"1", b"2"]}
    frame = pl.DataFrame(rows | {"event": ["play", "seen"]})
    frame.write_parquet(tmp_path / "log.parquet")
    notes = preview_import(tmp_path / "log.parquet", ImportOptions()).notes
    assert any(note.startswith("columns with few values: 'event' ('play', 'seen'). If") for note in notes)
    assert len(lightgc2n.Dataset.from_frame(frame).accounts) == 2


def test_a_preview_of_sequences(tmp_path: Path) -> None:
    (tmp_path / "log.tsv").write_text("h1\ta b c d e f\nh2\tb\n")
    preview = preview_import(tmp_path / "log.tsv", ImportOptions())
    assert preview.first == [{"account": "h1", "items": "a b c d e …"}, {"account": "h2", "items": "b"}]


def test_columns_that_look_like_times_or_titles_are_named(tmp_path: Path) -> None:
    rows = ("Kunde;Sendung;Sendungstitel;Zeitpunkt", "k1;7;Küche 1;05.01.2024 19:59", "k1;8;Zoo;06.01.2024 20:00")
    (tmp_path / "log.csv").write_text("\n".join([*rows, ""]), encoding="cp1252")
    words = (
        "import",
        tmp_path / "log.csv",
        "--encoding",
        "cp1252",
        "--account-column",
        "Kunde",
        "--item-column",
        "Sendung",
    )
    done = run(*words, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "column 'Zeitpunkt' looks like times: to use it, give --time-column" in done.stdout
    assert "column 'Sendungstitel' looks like titles" in done.stdout
    done = run(*words, "--out", tmp_path / "data")
    assert "column 'Zeitpunkt' looks like times" in done.stderr
    named = ("--title-column", "Sendungstitel", "--time-column", "Zeitpunkt", "--time-format", "%d.%m.%Y %H:%M")
    done = run(*words, *named, "--out", tmp_path / "other")
    assert "looks like" not in done.stderr
