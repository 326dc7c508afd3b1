"""Checkpoints are written under the product's own temporary name alone."""

from pathlib import Path

import pytest
from torch import nn

from lightgc2n.files import atomic_writes
from lightgc2n.training.checkpoints import Progress, load_checkpoint, save_checkpoint


def test_a_clean_up_leaves_an_unfinished_checkpoint_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock must be on the file that is renamed; a library that replaces it would leave names nobody cleans."""
    sync = atomic_writes.sync_file

    def clean_up_first(path: Path) -> None:
        atomic_writes.remove_leftovers(path.parent)  # as another process does that writes to the same folder
        assert [one.name for one in tmp_path.iterdir()] == [path.name]
        sync(path)

    monkeypatch.setattr(atomic_writes, "sync_file", clean_up_first)
    save_checkpoint(tmp_path / "best.safetensors", nn.Linear(2, 1), None, Progress(epochs=3))
    assert load_checkpoint(tmp_path / "best.safetensors")[2].epochs == 3
