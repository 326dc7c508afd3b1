"""The catalogue of a dataset, from an item file and from the titles of a log, and files of titles."""

import json
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

from lightgc2n.data.catalogue import CatalogueEntry, join_catalogues, read_titles
from lightgc2n.data.dataset import CATALOGUE, load_dataset, verify_dataset
from lightgc2n.data.forget_dataset import forget_in_dataset
from lightgc2n.data.formats.item_tables import read_items
from lightgc2n.data.importing import ImportOptions, import_frame, import_log
from lightgc2n.errors import DataError
from lightgc2n.synthetic.merged_accounts import SimulateOptions, simulate

LOG = "user,item,timestamp,title\na,1,1,One\na,2,2,\nb,1,3,Uno\nb,3,4,Three\nc,2,5,\nc,1,6,One\n"
ITEMS = "id,title,genres,poster\n1,The First (1999),Drama|Crime,https://x.org/1.png\n9,Ninth,,\n2,,Drama,\n"
EXPECTED = {
    "1": CatalogueEntry("The First (1999)", ("Drama", "Crime"), 1999, "https://x.org/1.png"),
    "9": CatalogueEntry("Ninth"),
    "2": CatalogueEntry("", ("Drama",)),
}


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    items = written(tmp_path / "items.csv", ITEMS)
    import_log(written(tmp_path / "log.csv", LOG), tmp_path / "shop", ImportOptions(), items=items)
    return tmp_path / "shop"


def test_every_format_gives_the_same_entries(tmp_path: Path) -> None:
    table = pl.DataFrame(
        {
            "Item ID": ["1", "9", "2"],
            "Title": ["The First (1999)", "Ninth", None],
            "categories": [["Drama", "Crime"], None, ["Drama"]],
            "image": ["https://x.org/1.png", None, None],
        }
    )
    table.write_parquet(tmp_path / "items.parquet")
    assert read_items(written(tmp_path / "a.csv", ITEMS)) == EXPECTED
    assert read_items(written(tmp_path / "b.csv", "\ufeff" + ITEMS.replace(",", ";").replace("\n", "\r\n"))) == EXPECTED
    assert read_items(written(tmp_path / "c.tsv", ITEMS.replace(",", "\t"))) == EXPECTED
    assert read_items(tmp_path / "items.parquet") == EXPECTED
    assert read_items(table) == EXPECTED
    assert read_items(pd.DataFrame(table.to_dict(as_series=False))) == EXPECTED


def test_movies_dat(tmp_path: Path) -> None:
    lines = "0068646::The Godfather (1972)::Crime|Drama\n7::Face::Off (1997)::\n8::Series (2011-2013)::TV\n9::None::\n"
    assert read_items(written(tmp_path / "movies.dat", lines)) == {
        "0068646": CatalogueEntry("The Godfather (1972)", ("Crime", "Drama"), 1972),
        "7": CatalogueEntry("Face::Off (1997)", (), 1997),
        "8": CatalogueEntry("Series (2011-2013)", ("TV",), 2011),
        "9": CatalogueEntry("None"),
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("id,title\n1,A\n\n2,B\n1,C\n", r"items.csv:5: item '1' is already in line 2"),
        ("id,title\n,A\n", r"items.csv:2: expected an item id"),
        ('id,title\n1,"A\n', r"items.csv:2: "),
        ("id,title\n1,A,B\n", r"items.csv:2: expected 2 fields, found 3"),
        ("id,title,image\n1,A,javascript:alert(1)\n", r"items.csv:2: expected the address of an image"),
        ("id,title,image\n1,A,//other.org/1.png\n", r"items.csv:2: expected the address of an image"),
        ("id,title,image\n1,A,https://x.org:port/1.png\n", r"items.csv:2: expected the address of an image"),
        ("id,title,year\n1,A,99\n", r"items.csv:2: expected a year of four digits, found '99'"),
        ("key,title\n1,A\n", r"items.csv:1: no column looks like the item id. Found: 'key', 'title'"),
        ("id,colour\n1,red\n", r"items.csv:1: no column looks like the title"),
        ("id,title\n", r"expected one item per row, found none"),
        ("", r"the file is empty"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(DataError, match=error):
        read_items(written(tmp_path / "items.csv", text))


@pytest.mark.parametrize(
    "address",
    ["https://x.org/1.png?a=b:c", "http://x.org:8080/1.png", "https://x.org", "/own/1.png", "own/1.png", "1.png"],
)
def test_addresses_of_images(tmp_path: Path, address: str) -> None:
    assert read_items(written(tmp_path / "items.csv", f"id,title,image\n1,A,{address}\n"))["1"].image == address


def test_duplicates_in_a_frame_name_both_rows() -> None:
    with pytest.raises(DataError, match=r"row 2: item 'x' is already in row 0"):
        read_items(pl.DataFrame({"id": ["x", "y", "x"], "title": ["A", "B", "C"]}))


def test_a_wrong_item_file_leaves_nothing(tmp_path: Path) -> None:
    log = written(tmp_path / "log.csv", LOG)
    with pytest.raises(DataError, match=r"none of its 1 items is in the log. Found for example 'tt1' here and '1'"):
        import_log(log, tmp_path / "shop", ImportOptions(), items=written(tmp_path / "i.csv", "id,title\ntt1,A\n"))
    with pytest.raises(DataError, match=r"gone.csv: no such file"):
        import_log(log, tmp_path / "shop", ImportOptions(), items=tmp_path / "gone.csv")
    assert not (tmp_path / "shop").exists()


def test_the_catalogue_is_kept_beside_the_events(folder: Path, tmp_path: Path) -> None:
    dataset = load_dataset(folder)
    assert dataset.catalogue["1"] == EXPECTED["1"]  # the item file wins over the log
    assert dataset.titles == {"1": "The First (1999)", "3": "Three", "9": "Ninth"}
    assert list(dataset.items) == ["1", "2", "3"]  # 9 has no event: it is in the catalogue alone
    assert {key: dataset.manifest["catalogue"][key] for key in ("items", "items_without_events")} == {
        "items": 4,
        "items_without_events": 1,
    }
    plain = import_log(tmp_path / "log.csv", tmp_path / "plain", ImportOptions(columns={"title": "title"}))
    bare = written(tmp_path / "bare.csv", "\n".join(line.rpartition(",")[0] for line in LOG.split("\n")))
    without = import_log(bare, tmp_path / "without", ImportOptions())
    assert dataset.checksum == plain["checksum"] == without["checksum"]
    assert "catalogue" not in without
    assert load_dataset(tmp_path / "plain").titles == {"1": "One", "3": "Three"}  # the first title of each item


def test_a_column_of_titles_may_be_the_item_column(tmp_path: Path) -> None:
    import_log(written(tmp_path / "log.csv", "user,title\na,X\na,Y\n"), tmp_path / "shop", ImportOptions())
    assert list(load_dataset(tmp_path / "shop").items) == ["X", "Y"]
    assert load_dataset(tmp_path / "shop").catalogue == {}


def test_titles_of_a_frame(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": ["a", "a"], "item": [1, 2], "what": ["One\n more", None]})
    import_frame(
        frame,
        tmp_path / "shop",
        ImportOptions(columns={"title": "what"}),
        items=pl.DataFrame({"id": [2, 3], "title": ["Two", "Three"]}),
    )
    assert load_dataset(tmp_path / "shop").titles == {"1": "One more", "2": "Two", "3": "Three"}


def test_forget_keeps_the_item_file_and_drops_titles_of_the_log(folder: Path) -> None:
    assert forget_in_dataset(folder, ["b"]).items == ["3"]  # only b had item 3
    dataset = load_dataset(folder)
    assert "3" not in dataset.catalogue
    assert dataset.titles == {"1": "The First (1999)", "9": "Ninth"}
    verify_dataset(folder)


def test_simulate_keeps_the_catalogue(folder: Path, tmp_path: Path) -> None:
    simulate(load_dataset(folder), SimulateOptions(members="2", min_events=1), tmp_path / "merged")
    assert load_dataset(tmp_path / "merged").catalogue == load_dataset(folder).catalogue


def test_a_changed_catalogue_is_detected(folder: Path) -> None:
    text = (folder / CATALOGUE).read_text()
    (folder / CATALOGUE).write_text(text.replace("Ninth", "Tenth"))
    with pytest.raises(DataError, match=r"catalogue.jsonl: checksum"):
        verify_dataset(folder)
    (folder / CATALOGUE).unlink()
    with pytest.raises(DataError, match=r"catalogue.jsonl: missing"):
        load_dataset(folder)


def test_fields_of_later_versions_are_ignored(folder: Path) -> None:
    facts = json.loads((folder / "manifest.json").read_text())
    added = b'{"item": "n", "title": "N", "colour": "red"}\n'
    text = (folder / CATALOGUE).read_bytes() + added
    (folder / CATALOGUE).write_bytes(text)
    facts["catalogue"]["bytes"] = len(text)
    (folder / "manifest.json").write_text(json.dumps(facts))
    assert load_dataset(folder).catalogue["n"] == CatalogueEntry("N")


def test_titles_of_the_log_complete_the_item_file() -> None:
    items = {"1": CatalogueEntry("", ("Drama",)), "2": CatalogueEntry("Two")}
    assert join_catalogues(items, {"1": "One", "2": "Zwei", "3": "Three"}) == {
        "1": CatalogueEntry("One", ("Drama",)),
        "2": CatalogueEntry("Two"),
        "3": CatalogueEntry("Three", from_log=True),
    }


@pytest.mark.parametrize(
    "text",
    [
        "1\tThe First\n3\tThree; or more\n",
        "item_id\ttitle\tcategories\n1\tThe First\tDrama\n3\tThree; or more\t\n",
        "Title,Movie ID,year\nThe First,1,1999\nThree; or more,3,\n",
        'movieId;name\n1;"The First"\n3;"Three; or more"\n\n4;\n',
    ],
)
def test_tables_and_pairs(text: str, tmp_path: Path) -> None:
    path = tmp_path / "titles"
    path.write_text(text, encoding="utf-8-sig")
    assert read_titles(path) == {"1": "The First", "3": "Three; or more"}


@pytest.mark.parametrize(
    ("text", "actual"),
    [
        ("", "holds no title"),
        ("id,title\n1\n", ":2: expected the columns of the header"),
        ("1,One\n", ":1: expected an"),
    ],
)
def test_what_is_no_title_file(text: str, actual: str, tmp_path: Path) -> None:
    path = tmp_path / "titles"
    path.write_text(text)
    with pytest.raises(DataError, match=actual):
        read_titles(path)
