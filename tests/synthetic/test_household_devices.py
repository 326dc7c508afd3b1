"""Devices of generated households: habits of each person, in a world that is otherwise the same."""

from pathlib import Path

import numpy as np

from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.importing import ImportOptions, import_log
from lightgc2n.data.members import load_members
from lightgc2n.people.sessions import session_numbers
from lightgc2n.synthetic.households import HouseholdConfig, generate


def made(folder: Path, devices: int) -> Path:
    generate(HouseholdConfig(accounts=60, devices=devices), seed=0, out=folder)
    return folder


def test_the_world_is_the_same_with_and_without_devices(tmp_path: Path) -> None:
    plain, devices = made(tmp_path / "plain", 0), made(tmp_path / "devices", 3)
    assert load_dataset(plain).checksum == load_dataset(devices).checksum
    assert load_dataset(plain).contexts is None
    contexts = load_dataset(devices).contexts
    assert contexts is not None
    assert (contexts.column, contexts.names) == ("device", ["tv", "tablet", "phone"])


def test_a_sitting_has_one_device_and_people_have_habits(tmp_path: Path) -> None:
    dataset = load_dataset(made(tmp_path / "town", 3))
    members = load_members(tmp_path / "town")
    assert members is not None
    assert dataset.contexts is not None
    device, member = np.asarray(dataset.contexts.of_event), np.asarray(members.of_event)
    together = np.diff(member) == 0
    together &= np.diff(session_numbers(dataset.offsets, dataset.times)) == 0
    assert (np.diff(device)[together] == 0).all()
    counts = np.zeros((len(members.names), 3))
    np.add.at(counts, (member, device), 1)
    often = counts[counts.sum(axis=1) >= 20]
    assert (often.max(axis=1) / often.sum(axis=1)).mean() > 0.5  # one in three without habits


def test_a_table_has_the_column_and_gives_the_same_dataset(tmp_path: Path) -> None:
    made(tmp_path / "town.csv", 2)
    assert (
        (tmp_path / "town.csv")
        .read_text(encoding="utf-8")
        .startswith("account_id,item_id,timestamp,domain,member,device\n")
    )
    import_log(tmp_path / "town.csv", tmp_path / "imported", ImportOptions(columns={"context": "device"}))
    imported, direct = load_dataset(tmp_path / "imported").contexts, load_dataset(made(tmp_path / "town", 2)).contexts
    assert imported is not None
    assert direct is not None
    names = [[one.names[value] for value in one.of_event.tolist()] for one in (imported, direct)]
    assert names[0] == names[1]
