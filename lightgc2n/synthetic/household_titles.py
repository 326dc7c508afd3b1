"""Titles of the items in a generated world: genre, number and episode."""

from pathlib import Path

import numpy as np

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
PART = {"video": "episode", "learn": "lesson"}


def titles_of(world: World) -> list[str]:
    """Return a unique title for each item, such as "Nature 12" or "Biology 3, lesson 2"."""
    titles = []
    number_in_genre = np.zeros(len(DOMAINS) * GENRES, dtype=np.int64)
    for genre, length in zip(world.unit_genre.tolist(), world.unit_length.tolist(), strict=True):
        number_in_genre[genre] += 1
        domain = DOMAINS[genre // GENRES]
        name = f"{GENRE_NAMES[domain][genre % GENRES]} {number_in_genre[genre]}"
        titles += [name] if length == 1 else [f"{name}, {PART[domain]} {part}" for part in range(1, length + 1)]
    return titles


def household_titles(config: HouseholdConfig, seed: int) -> dict[str, str]:
    """The titles of the world of `seed`, by item id."""
    world = build_world(config, seed)
    return dict(zip(world.item_ids(), titles_of(world), strict=True))


def write_titles(config: HouseholdConfig, seed: int, out: Path, force: bool = False) -> int:
    """Write one id, tab and title per line for the world of `seed`; return the number of lines."""
    lines = [f"{item}\t{title}\n" for item, title in household_titles(config, seed).items()]
    with new_file(out, force) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
    return len(lines)
