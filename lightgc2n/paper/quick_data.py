"""Data for a quick run, generated from a seed: households with logs of two domains, and windows cut from one domain."""

from pathlib import Path

import numpy as np

from lightgc2n.data.dataset import DATASET, MANIFEST, Dataset, load_dataset, write_dataset
from lightgc2n.files.atomic_writes import new_folder
from lightgc2n.synthetic.households import HouseholdConfig, generate

HOMES, WINDOWS = "homes", "homes-windows"
WORLD = HouseholdConfig(accounts=150, video_items=300, learn_items=200, events_per_account=24.0)
LONGEST, SHORTEST, STEP = 12, 4, 3  # events of a window, and the step from the end of one to the end of the next


def quick_data(folder: Path, world: HouseholdConfig = WORLD) -> tuple[Path, Path]:
    """Return the folders of logs and windows; existing ones are kept."""
    if not (folder / HOMES / MANIFEST).is_file():
        generate(world, 0, folder / HOMES)
    if not (folder / WINDOWS / MANIFEST).is_file():
        logs = load_dataset(folder / HOMES)
        cut_windows(logs.only(logs.domains[0].name), folder / WINDOWS)
    return folder / HOMES, folder / WINDOWS


def cut_windows(logs: Dataset, out: Path) -> None:
    """Write overlapping windows of each log, the target last, as in the published benchmark."""
    begin, end, owner = [], [], []
    for account, start, stop in zip(logs.sequence_accounts, logs.offsets[:-1], logs.offsets[1:], strict=True):
        for last in range(int(stop), int(start) + SHORTEST - 1, -STEP):
            begin.append(max(int(start), last - LONGEST))
            end.append(last)
            owner.append(int(account))
    lengths = np.array(end) - np.array(begin)
    events = np.concatenate([logs.events[first:last] for first, last in zip(begin, end, strict=True)])
    with new_folder(out, kind=DATASET) as folder:
        write_dataset(
            folder,
            name=out.name,
            kind="windows",
            accounts=logs.accounts,
            items=logs.items,
            domains=logs.domains,
            offsets=np.append(0, np.cumsum(lengths)),
            sequence_accounts=np.array(owner),
            events=events,
            source={"dataset": logs.name, "checksum": logs.checksum},
            catalogue=logs.catalogue,
            notes=["Windows cut from generated households, so that they overlap as published windows do."],
        )
