"""Titles from a table with a header, or from an id, a tab and a title per line."""

from pathlib import Path

import pytest

from lightgc2n.data.title_files import read_titles
from lightgc2n.errors import DataError


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
    ("text", "found"),
    [
        ("", "holds no title"),
        ("id,title\n1\n", ":2: expected the columns of the header"),
        ("1,One\n", ":1: expected an"),
    ],
)
def test_what_is_no_title_file(text: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "titles"
    path.write_text(text)
    with pytest.raises(DataError, match=found):
        read_titles(path)
