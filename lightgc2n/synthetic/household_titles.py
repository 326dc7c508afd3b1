"""Titles and genres of the items in a generated world: genre, number and episode."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lightgc2n.data.catalogue import CatalogueEntry
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.synthetic.household_world import DOMAINS, GENRES, HouseholdConfig, World, build_world

# Genres of the same number are related across domains; the names do not reveal who watches them.
GENRE_NAMES = {
    "video": (
        *("Crime", "Comedy", "Nature", "History", "Space", "Travel", "Cooking", "Music"),
        *("Sport", "Drama", "Adventure", "Mystery", "Dance", "Animals", "Theatre", "Engines"),
    ),
    "learn": (
        *("Law", "Languages", "Biology", "Archaeology", "Astronomy", "Geography", "Nutrition", "Instruments"),
        *("Fitness", "Writing", "Outdoors", "Logic", "Movement", "Farming", "Rhetoric", "Mechanics"),
    ),
}
HEADER = "item_id\ttitle\tcategories\n"
PART = {"video": "episode", "learn": "lesson"}


def titles_of(world: World) -> list[str]:
    """Return a unique title for each item, such as "Nature 12" or "Biology 3, lesson 2"."""
    return [title for title, _ in _titles_and_genres(world)]


def household_catalogue(world: World) -> dict[str, CatalogueEntry]:
    """The title and the genre of each item, by item id."""
    named = zip(world.item_ids(), _titles_and_genres(world), strict=True)
    return {item: CatalogueEntry(title, (genre,)) for item, (title, genre) in named}


def write_titles(config: HouseholdConfig, seed: int, out: Path, force: bool = False) -> int:
    """Write a table of items for the world of `seed`, as `import --items` reads it; return the number of items."""
    catalogue = household_catalogue(build_world(config, seed))
    lines = (f"{item}\t{entry.title}\t{entry.categories[0]}\n" for item, entry in catalogue.items())
    with new_file(out, force) as temporary:
        temporary.write_text("".join([HEADER, *lines]), encoding="utf-8")
    return len(catalogue)


def _titles_and_genres(world: World) -> Iterator[tuple[str, str]]:
    number_in_genre = np.zeros(len(DOMAINS) * GENRES, dtype=np.int64)
    for genre, length in zip(world.unit_genre.tolist(), world.unit_length.tolist(), strict=True):
        number_in_genre[genre] += 1
        domain = DOMAINS[genre // GENRES]
        kind = GENRE_NAMES[domain][genre % GENRES]
        name = f"{kind} {number_in_genre[genre]}"
        parts = range(1, length + 1)
        for title in [name] if length == 1 else [f"{name}, {PART[domain]} {part}" for part in parts]:
            yield title, kind
