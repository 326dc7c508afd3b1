"""Reads item titles from a file with an id, a tab and a title on each line."""

from pathlib import Path

from lightgc2n.errors import DataError


def read_titles(path: Path) -> dict[str, str]:
    """The titles by item id; the last one of a repeated id."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8. Write an item id, a tab and its title a line.") from None
    titles = {}
    for number, line in enumerate(lines, start=1):
        item, tab, title = line.partition("\t")
        if line and not (item and tab and title):
            raise DataError(f"{path}:{number}: expected an item id, a tab and its title, found {line!r}.")
        titles[item] = title
    titles.pop("", None)
    if not titles:
        raise DataError(f"{path}: holds no title. Write an item id, a tab and its title a line.")
    return titles
