"""Generated households: the same seed gives the same world, and that world resembles real logs."""

import gzip
import importlib
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from lightgc2n.config import read_settings
from lightgc2n.data.dataset import MICROSECONDS, Domain, load_dataset, verify_dataset
from lightgc2n.data.members import load_members
from lightgc2n.errors import OutputError, SettingError
from lightgc2n.synthetic import households
from lightgc2n.synthetic.household_viewing import _follow_lines, _in_order, _Slots
from lightgc2n.synthetic.household_world import World, build_world
from lightgc2n.synthetic.households import HouseholdConfig, generate

SMALL = HouseholdConfig(accounts=60, video_items=300, learn_items=200)
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def read_rows(path: Path) -> list[list[str]]:
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    assert header == "account_id,item_id,timestamp,domain,member"
    return [row.split(",") for row in rows]


def rows_of(config: HouseholdConfig, folder: Path, seed: int = 3) -> list[list[str]]:
    generate(config, seed, folder / "events.csv")
    return read_rows(folder / "events.csv")


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    """The measures of docs/households.md, so that tests and text mean the same by a word."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        return importlib.import_module("household_realism")


@pytest.fixture(scope="module")
def town(measure: ModuleType):
    return measure.build_town(HouseholdConfig(accounts=2000), seed=11)


@pytest.mark.parametrize("name", ["events.csv", "events.csv.gz"])
def test_a_seed_gives_the_same_bytes_and_another_seed_others(tmp_path, name):
    once, again, other = (tmp_path / folder / name for folder in ("once", "again", "other"))
    generate(SMALL, 1, once)
    generate(SMALL, 1, again)
    generate(SMALL, 2, other)
    assert once.read_bytes() == again.read_bytes()
    assert once.read_bytes() != other.read_bytes()


def test_first_accounts_do_not_depend_on_how_many_follow(tmp_path, monkeypatch):
    monkeypatch.setattr(households, "EVENTS_AT_ONCE", 1000)  # 27 homes a chunk, so that chunks end in between
    few, many = tmp_path / "few.csv", tmp_path / "many.csv"
    generate(HouseholdConfig(accounts=50), 4, few)
    generate(HouseholdConfig(accounts=100), 4, many)
    assert many.read_bytes().startswith(few.read_bytes())
    assert len({row[0] for row in read_rows(many)}) == 100


def test_table_and_folder_hold_the_same_events(tmp_path, monkeypatch):
    pl = pytest.importorskip("polars")
    monkeypatch.setattr(households, "EVENTS_AT_ONCE", 1000)
    counts = generate(SMALL, 5, tmp_path / "events.csv")["counts"]
    generate(SMALL, 5, tmp_path / "prepared")
    table = pl.read_csv(tmp_path / "events.csv")
    dataset, members = load_dataset(tmp_path / "prepared"), load_members(tmp_path / "prepared")
    owner = np.repeat(dataset.sequence_accounts, dataset.lengths)
    assert table["account_id"].to_list() == [dataset.accounts[account] for account in owner]
    assert table["item_id"].to_list() == [dataset.items[item] for item in dataset.events]
    assert (table["timestamp"].to_numpy() * MICROSECONDS == dataset.times).all()
    assert table["domain"].to_list() == [dataset.domains[domain].name for domain in dataset.event_domains]
    assert table["member"].to_list() == [members.names[member] for member in members.of_event]
    assert counts["events"] == len(table) == dataset.manifest["counts"]["events"]


def test_compressed_table_is_the_plain_one(tmp_path):
    generate(SMALL, 1, tmp_path / "events.csv")
    generate(SMALL, 1, tmp_path / "events.csv.gz")
    assert gzip.decompress((tmp_path / "events.csv.gz").read_bytes()) == (tmp_path / "events.csv").read_bytes()


def test_folder_is_a_whole_dataset_and_nothing_else_is_left(tmp_path):
    manifest = generate(SMALL, 5, tmp_path / "prepared")
    verify_dataset(tmp_path / "prepared")
    assert [path.name for path in tmp_path.iterdir()] == ["prepared"]
    assert (manifest["kind"], manifest["options"]["seed"], manifest["options"]["accounts"]) == ("logs", 5, 60)
    assert [domain["name"] for domain in manifest["domains"]] == ["video", "learn"]
    assert not [file for file in manifest["files"] if "raw" in file]


def test_members_are_in_the_labels_only(tmp_path):
    folder = tmp_path / "prepared"
    generate(SMALL, 5, folder)
    named = [path for path in folder.rglob("*") if path.is_file() and b"h000000-" in path.read_bytes()]
    assert named == [folder / "labels" / "members.txt"]


def test_events_of_an_account_lie_together_and_in_strict_order_of_time(tmp_path):
    rows = rows_of(SMALL, tmp_path)
    accounts = [row[0] for row in rows]
    assert accounts == sorted(accounts)
    for before, after in pairwise(rows):
        assert before[0] != after[0] or int(before[2]) < int(after[2])


def test_equal_seconds_are_pushed_apart():
    home, time = np.array([0, 0, 0, 1, 1]), np.array([7, 5, 5, 5, 5])
    slots = _in_order(_Slots(home, np.array([10, 11, 12, 13, 14]), home, home, time))
    assert slots.time.tolist() == [5, 6, 7, 5, 6]
    assert slots.person.tolist() == [11, 12, 10, 13, 14]


def test_homes_have_one_to_five_people_and_a_guest(tmp_path):
    rows = rows_of(HouseholdConfig(accounts=400, guests=0.1), tmp_path)
    people: dict[str, set[str]] = {}
    for account, _, _, _, member in rows:
        home, _, who = member.partition("-")
        assert home == account
        people.setdefault(account, set()).add(who)
    assert set().union(*people.values()) == {"1", "2", "3", "4", "5", "guest"}
    assert {len(who - {"guest"}) for who in people.values()} >= {1, 2, 3, 4}


def test_household_sizes_and_guests_follow_the_settings(tmp_path):
    config = HouseholdConfig(accounts=100, smallest_household=2, largest_household=2, guests=0.0)
    members = {row[4].partition("-")[2] for row in rows_of(config, tmp_path)}
    assert members == {"1", "2"}


def test_every_account_has_five_events_or_more(tmp_path):
    rows = rows_of(HouseholdConfig(accounts=500, events_per_account=10.0), tmp_path)
    counts = np.unique([row[0] for row in rows], return_counts=True)[1]
    assert len(counts) == 500
    assert counts.min() == 5  # short accounts exist, and none is shorter
    assert counts.mean() == pytest.approx(10, abs=1)


def test_ids_name_the_domain(tmp_path):
    for _, item, _, domain, _ in rows_of(SMALL, tmp_path):
        assert {"v": "video", "l": "learn"}[item[0]] == domain


def test_first_views_of_a_series_are_in_order_without_a_gap(town):
    seen: dict[tuple[int, int], list[int]] = {}
    for person, item in zip(town.person.tolist(), town.item.tolist(), strict=True):
        unit = int(town.world.unit_of_item[item])
        episode = item - int(town.world.unit_first[unit])
        known = seen.setdefault((person, unit), [])
        if episode not in known:
            assert episode == len(known)
            known.append(episode)
    assert sum(len(known) >= 3 for known in seen.values()) > 500


def test_one_line_by_hand():
    # Items 0, 1, 2 are a series (unit 0), item 3 is a title (unit 1).
    world = World(
        domains=(Domain("video", 0, 4),),
        unit_first=np.array([0, 3], dtype=np.int32),
        unit_length=np.array([3, 1], dtype=np.int32),
        unit_genre=np.zeros(2, dtype=np.int32),
        unit_weight=np.array([0.5, 0.5]),
        unit_of_item=np.array([0, 0, 0, 1], dtype=np.int32),
        role_taste=np.empty(0),
    )
    config = HouseholdConfig(rewatching=0.2, binge=0.3)
    steps = [  # first choice, second choice, whim, reach back beyond two, and the item that must come of it
        (0, 1, 0.9, 0, 0),  # a pick: the series, from its beginning
        (1, 0, 0.9, 0, 3),  # a pick: the title
        (1, 0, 0.1, 0, 0),  # a look back, two events: the first episode again
        (1, 0, 0.4, 0, 1),  # on with the series, where it was left
        (1, 0, 0.9, 0, 2),  # the title is known, so the second choice: the rest of the series
        (1, 1, 0.4, 0, 3),  # the series is over, so a pick, and both choices are known
        (1, 1, 0.1, 6, 1),  # two and six back is before the beginning, so it wraps to three back
    ]
    first, second, whim, reach, expected = (np.array(column) for column in zip(*steps, strict=True))
    line = np.zeros(len(steps), dtype=np.int64)
    items = _follow_lines(config, world, line, np.stack([first, second]), whim, reach)
    assert items.tolist() == expected.tolist()


def test_world_does_not_depend_on_the_number_of_accounts():
    few, many = (build_world(HouseholdConfig(accounts=accounts), 1) for accounts in (50, 5000))
    assert (few.unit_of_item == many.unit_of_item).all()
    assert (few.unit_weight == many.unit_weight).all()
    sums = np.bincount(few.unit_genre, few.unit_weight)
    np.testing.assert_allclose(sums, 1.0)


@pytest.mark.parametrize(
    "extremes",
    [
        {"series": 0.9, "popularity": 0.0, "guests": 0.5, "co_viewing": 1.0, "weeks": 1, "session_events": 50.0},
        {
            "series": 0.0,
            "popularity": 2.0,
            "guests": 0.0,
            "habit": 0.0,
            "taste_sharpness": 100.0,
            "taste_transfer": 1.0,
        },
        {"largest_household": 1, "rewatching": 0.9, "binge": 1.0, "taste_sharpness": 0.01, "session_events": 1.0},
    ],
)
def test_settings_at_their_bounds_still_make_a_world(tmp_path, extremes):
    config = read_settings(HouseholdConfig, {"accounts": 50, "video_items": 200, "learn_items": 200} | extremes, "test")
    assert len({row[0] for row in rows_of(config, tmp_path)}) == 50


@pytest.mark.parametrize(
    ("name", "value"), [("accounts", 10), ("accounts", 1_000_001), ("largest_household", 6), ("guests", -0.1)]
)
def test_values_out_of_bounds_are_refused(name, value):
    with pytest.raises(SettingError, match=name):
        read_settings(HouseholdConfig, {name: value}, "test")


def test_contradictions_and_negative_seeds_are_refused(tmp_path):
    with pytest.raises(SettingError, match="smallest_household"):
        generate(HouseholdConfig(smallest_household=3, largest_household=2), 0, tmp_path / "events.csv")
    with pytest.raises(SettingError, match="seed"):
        generate(HouseholdConfig(), -1, tmp_path / "events.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["events.csv", "prepared"])
def test_existing_output_is_replaced_only_by_force(tmp_path, name):
    generate(SMALL, 1, tmp_path / name)
    with pytest.raises(OutputError):
        generate(SMALL, 2, tmp_path / name)
    generate(SMALL, 2, tmp_path / name, force=True)


@pytest.mark.parametrize("domain", [0, 1])
def test_a_default_world_resembles_real_logs(measure, town, domain):
    facts = measure.describe_logs(town.logs(domain))
    assert 0.75 < facts["Gini of item popularity"] < 0.90
    assert 0.15 < facts["events of the top 1 % of items"] < 0.50
    assert 0.15 < facts["repeat rate"] < 0.30
    assert facts["immediate repeats"] < 0.03
    assert 12 <= facts["log length p50"] <= 24
    assert 0.08 < facts["recency recall@5"] < 0.35
    assert 0.08 < facts["Markov recall@5"] < 0.35
    assert facts["popularity recall@5"] < facts["Markov recall@5"]


def test_homes_stay_with_a_domain_as_real_ones_do(measure, town):
    facts = measure.describe_runs(measure.split_by(town.home, town.domain))
    assert 6 <= facts["run of one domain p50"] <= 16
    assert 0.04 < facts["neighbours of different domains"] < 0.08


def test_sittings_belong_to_one_person(measure, town):
    assert measure.sitting_purity(town) > 0.95


def test_sittings_are_short_and_many(measure, town):
    facts = measure.describe_sittings(measure.split_by(town.home, town.time))
    assert 1.8 < facts["events of a sitting mean"] < 2.5
    assert facts["sittings of an account mean"] > 15


@pytest.fixture(scope="module")
def scores(measure: ModuleType, town) -> dict[str, dict[str, float]]:
    pytest.importorskip("sklearn")
    return measure.describe_people(town, sample=250)


def test_a_simple_method_separates_people_a_little(scores):
    over_events, chance = scores["events"], scores["events"]["labels at random"]
    assert chance < 0.1
    for name in ("k-means on items", "k-means on items at one length"):
        assert max(0.1, chance + 0.05) < over_events[name] < 0.4
    assert chance + 0.05 < over_events["k-means on hours"] < 0.35
    assert over_events["k-means on items and hours"] < 0.4


def test_signals_add_up_and_no_single_one_is_enough(scores):
    over_events = scores["events"]
    assert over_events["k-means on items at one length"] < over_events["linkage of items, hours and series"]
    assert 0.5 < over_events["known tastes"] < over_events["known people, all together"]
    assert over_events["known hours"] < 0.5
    assert over_events["known people, all together"] >= 0.75


def test_over_sittings_chance_is_zero_and_each_signal_shows(scores):
    over_sittings = scores["sittings"]
    assert abs(over_sittings["labels at random"]) < 0.03
    assert 0.06 < over_sittings["k-means on items"] < 0.3
    assert 0.06 < over_sittings["k-means on hours"] < 0.3
    assert over_sittings["known people, all together"] > 0.7


def test_without_habits_hours_tell_little(measure):
    pytest.importorskip("sklearn")
    town = measure.build_town(HouseholdConfig(accounts=300, habit=0.0), seed=11)
    assert measure.describe_people(town, sample=150)["sittings"]["k-means on hours"] < 0.1
