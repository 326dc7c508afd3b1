"""What several commands open alike."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightgc2n.progress import say

if TYPE_CHECKING:
    from lightgc2n.data.dataset import Dataset
    from lightgc2n.data.splits import Split


def open_split(folder: Path, domain: str | None, **settings: Any) -> "tuple[Dataset, Split]":
    """The dataset, checked against its checksums, or one domain of it, and its split."""
    from lightgc2n.config import read_settings
    from lightgc2n.data.dataset import load_dataset, verify_dataset
    from lightgc2n.data.splits import SplitConfig, split_dataset

    config = read_settings(SplitConfig, settings, where="split")
    dataset = load_dataset(folder)
    verify_dataset(folder)
    if domain:
        dataset = dataset.only(domain)
    return dataset, split_dataset(dataset, config)


def warn_of_leaks(dataset: "Dataset", split: "Split") -> None:
    """Says what leaks, where the protocol is known to."""
    if split.stamps:
        from lightgc2n.data.audit import audit_split

        say(audit_split(dataset, split).verdict)
