"""What a run has learned, carried over to a model on newer data: rows of accounts and items find their places by id.

A row of someone or something new is the mean of all rows of the run. That is where a stranger's fold-in starts too, and
it puts new items in the midst of a list; with freshly drawn rows, which training has not pushed down, they stand above.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightgc2n.data.dataset import Dataset, Longs, read_ids
from lightgc2n.data.files import new_file
from lightgc2n.errors import DataError, SettingError
from lightgc2n.models.contract import Model
from lightgc2n.training.checkpoints import load_checkpoint
from lightgc2n.training.loop import BEST

VOCABULARIES = ("accounts", "items")
WHOLE = "whole"


def vocabulary_files() -> list[str]:
    """The files of a run that hold ids."""
    return [f"{kind}.txt" for kind in VOCABULARIES]


def write_vocabularies(run: Path, dataset: Dataset) -> None:
    """Keeps the ids of accounts and items with the run, whose dataset may go."""
    for kind, file in zip(VOCABULARIES, vocabulary_files(), strict=True):
        if not (run / file).exists():
            with new_file(run / file, force=True) as temporary:
                temporary.write_bytes("".join(f"{one}\n" for one in getattr(dataset, kind)).encode("utf-8"))


@torch.no_grad()
def carry_over(model: Model, dataset: Dataset, run: Path) -> None:
    """Puts the best weights of a run into a new model; the graph and all else that is counted stay the new data's."""
    learned = load_checkpoint(run / BEST)[0]
    places = {kind: _places(run, kind, getattr(dataset, kind)) for kind in VOCABULARIES}
    if bool((places["items"] < 0).all()):
        raise DataError(f"{run}: knows no item of {dataset.name}. Train without --from.")
    tensors, kinds = model.state_dict(), {name: WHOLE for name, _ in model.named_parameters()} | model.carried()
    for name, kind in kinds.items():
        own, by_rows = tensors[name], int(kind != WHOLE)
        if name not in learned or learned[name].shape[by_rows:] != own.shape[by_rows:]:
            found = tuple(learned[name].shape) if name in learned else "missing"
            raise SettingError(
                f"{run}: its {name} is {found}, this model needs {tuple(own.shape)}. Keep the settings of the run."
            )
        own.copy_(_moved(learned[name], own, places[kind]) if by_rows else learned[name])


def _places(run: Path, kind: str, wanted: Sequence[str]) -> Longs:
    """Where each id stands in the run; -1 for a new one."""
    path = run / f"{kind}.txt"
    if not path.is_file():
        raise DataError(f"{path}: missing. Give the command that trained {run} once more, and it is written.")
    known = {one: place for place, one in enumerate(read_ids(path))}
    return np.array([known.get(one, -1) for one in wanted], dtype=np.int64)


def _moved(learned: Tensor, own: Tensor, places: Longs) -> Tensor:
    """The rows of the run in the order of the new data; of what is no number there is no mean, so new rows stay."""
    place = torch.from_numpy(places)
    known = (place >= 0).view(-1, *[1] * (learned.dim() - 1))
    new: Any = learned.mean(dim=0) if learned.is_floating_point() else own.cpu()
    return torch.where(known, learned[place.clamp(min=0)], new)
