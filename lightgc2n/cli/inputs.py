"""What several commands open alike."""

from collections.abc import Sequence
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


def read_tables(config: Path | None, overrides: list[str] | None, known: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The settings of a TOML file and of --set by table; every known table is there, an unknown one is refused."""
    from lightgc2n.config import parse_overrides, read_toml, unknown_name
    from lightgc2n.errors import SettingError

    tables: dict[str, dict[str, Any]] = {name: {} for name in known}
    for source, found in (
        (str(config), read_toml(config) if config else {}),
        ("--set", parse_overrides(overrides or [])),
    ):
        for table, values in found.items():
            if table not in tables:
                raise SettingError(f"{source}: {unknown_name('table', table, known)}")
            tables[table] |= values
    return tables


def warn_of_leaks(dataset: "Dataset", split: "Split") -> None:
    """Says what leaks, where the protocol is known to."""
    if split.stamps:
        from lightgc2n.data.audit import audit_split

        say(audit_split(dataset, split).verdict)
