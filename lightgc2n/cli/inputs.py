"""What several commands open alike."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightgc2n.progress import say

if TYPE_CHECKING:
    from lightgc2n.data.dataset import Dataset
    from lightgc2n.data.splits import Split


def open_split(folder: Path, domain: str, **settings: Any) -> "tuple[Dataset, Split]":
    """The dataset, or one domain of it, and its split; says so when the split leaks."""
    from lightgc2n.config import read_settings
    from lightgc2n.data.dataset import load_dataset, verify_dataset
    from lightgc2n.data.splits import SplitConfig, split_dataset

    config = read_settings(SplitConfig, settings, where="split")
    dataset = load_dataset(folder)
    verify_dataset(folder)
    if domain:
        dataset = dataset.only(domain)
    split = split_dataset(dataset, config)
    if split.stamps:
        from lightgc2n.data.audit import audit_split

        say(audit_split(dataset, split).verdict)
    return dataset, split
