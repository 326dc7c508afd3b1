"""Warm start: a model on newer data starts from the weights of a run; rows of accounts and items are remapped by id.

The row of a new account or item is the mean of all rows of the run, as in the fold-in of unseen accounts. New items
then rank in the middle; with random rows, which training has not pushed down, they would rank first.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightgc2n.data.dataset import Dataset, Longs, read_ids
from lightgc2n.errors import DataError, SettingError
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.models.contract import Model
from lightgc2n.training.checkpoints import load_checkpoint
from lightgc2n.training.loop import BEST

VOCABULARIES = ("accounts", "items")
WHOLE = "whole"


def vocabulary_files() -> list[str]:
    """Return the names of the files with the ids of a run."""
    return [f"{kind}.txt" for kind in VOCABULARIES]


def write_vocabularies(run: Path, dataset: Dataset) -> None:
    """Write the ids of accounts and items into the run, so that it does not need its dataset for a warm start."""
    for kind, file in zip(VOCABULARIES, vocabulary_files(), strict=True):
        if not (run / file).exists():
            with new_file(run / file, force=True) as temporary:
                temporary.write_bytes("".join(f"{one}\n" for one in getattr(dataset, kind)).encode("utf-8"))


@torch.no_grad()
def warm_start(model: Model, dataset: Dataset, run: Path) -> None:
    """Copy the best weights of a run into a new model; graphs and counts stay those of the new data."""
    learned = load_checkpoint(run / BEST)[0]
    places = {kind: _places(run, kind, getattr(dataset, kind)) for kind in VOCABULARIES}
    if bool((places["items"] < 0).all()):
        raise DataError(f"{run}: has no item in common with {dataset.name}. Train without a warm start.")
    tensors, kinds = (
        model.state_dict(),
        {name: WHOLE for name, _ in model.named_parameters()} | model.warm_start_tensors(),
    )
    for name, kind in kinds.items():
        own, by_rows = tensors[name], int(kind != WHOLE)
        if name not in learned or learned[name].shape[by_rows:] != own.shape[by_rows:]:
            shape = tuple(learned[name].shape) if name in learned else "missing"
            raise SettingError(
                f"{run}: its {name} is {shape}, this model needs {tuple(own.shape)}. Use the settings of the run."
            )
        own.copy_(_remapped(learned[name], own, places[kind]) if by_rows else learned[name])


def _places(run: Path, kind: str, wanted: Sequence[str]) -> Longs:
    """The row of each id in the run; -1 for a new id."""
    path = run / f"{kind}.txt"
    if not path.is_file():
        raise DataError(f"{path}: missing. Rerun the command that trained {run} to write it.")
    known = {one: place for place, one in enumerate(read_ids(path))}
    return np.array([known.get(one, -1) for one in wanted], dtype=np.int64)


def _remapped(learned: Tensor, own: Tensor, places: Longs) -> Tensor:
    """The rows of the run in the order of the new data; new rows are the mean, or unchanged in integer tensors."""
    place = torch.from_numpy(places)
    known = (place >= 0).view(-1, *[1] * (learned.dim() - 1))
    new: Any = learned.mean(dim=0) if learned.is_floating_point() else own.cpu()
    return torch.where(known, learned[place.clamp(min=0)], new)
