"""A model written to a checkpoint and rebuilt from it."""

from pathlib import Path

from lightgc2n import zoo
from lightgc2n.models.contract import Model
from lightgc2n.training.checkpoints import Progress, load_checkpoint, save_checkpoint


def saved_and_restored(name: str, model: Model, folder: Path) -> Model:
    """The model that its checkpoint gives, ready for inference."""
    save_checkpoint(folder / "model.safetensors", model, None, Progress())
    tensors = load_checkpoint(folder / "model.safetensors")[0]
    return zoo.entry_of(name).restore(model.config, tensors).eval()
