"""Titles of generated items: one for each, all different, episodes of a series in order."""

from pathlib import Path

from lightgc2n.data.catalogue import CatalogueEntry, read_titles
from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.formats.item_tables import read_items
from lightgc2n.synthetic.household_titles import household_catalogue, titles_of, write_titles
from lightgc2n.synthetic.households import HouseholdConfig, build_world, generate


def test_every_item_has_a_title_of_its_own() -> None:
    world = build_world(HouseholdConfig(accounts=50), seed=1)
    titles = titles_of(world)
    assert len(titles) == len(set(titles)) == len(world.item_ids())


def test_a_series_by_hand() -> None:
    world = build_world(HouseholdConfig(accounts=50), seed=1)
    unit = int((world.unit_length > 1).argmax())
    first, length = int(world.unit_first[unit]), int(world.unit_length[unit])
    episodes = titles_of(world)[first : first + length]
    name = episodes[0].removesuffix(", episode 1")
    assert episodes == [f"{name}, episode {part}" for part in range(1, length + 1)]


def test_titles_and_genres_are_read_back_as_import_and_export_read_them(tmp_path: Path) -> None:
    config, path = HouseholdConfig(accounts=50), tmp_path / "titles.tsv"
    count = write_titles(config, 1, path)
    world = build_world(config, 1)
    assert read_titles(path) == dict(zip(world.item_ids(), titles_of(world), strict=True))
    assert read_items(path) == household_catalogue(world)
    assert count == config.video_items + config.learn_items


def test_a_generated_dataset_keeps_titles_where_wanted(tmp_path: Path) -> None:
    config = HouseholdConfig(accounts=50)
    generate(config, 1, tmp_path / "town", titles=True)
    generate(config, 1, tmp_path / "bare")
    town, bare = load_dataset(tmp_path / "town"), load_dataset(tmp_path / "bare")
    item = town.items[0]
    title = town.titles[item]
    assert town.catalogue[item] == CatalogueEntry(title, (title.split()[0],))
    assert bare.catalogue == {}
    assert town.checksum == bare.checksum
