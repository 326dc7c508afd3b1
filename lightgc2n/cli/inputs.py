"""Opening datasets and settings, shared by several commands."""

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
    """The settings of a TOML file and of --set by table; every known table is present, an unknown one is an error."""
    from lightgc2n.config import parse_overrides, read_toml, unknown_name
    from lightgc2n.errors import SettingError

    tables: dict[str, dict[str, Any]] = {name: {} for name in known}
    for source, given in (
        (str(config), read_toml(config) if config else {}),
        ("--set", parse_overrides(overrides or [])),
    ):
        for table, values in given.items():
            if table not in tables:
                raise SettingError(f"{source}: {unknown_name('table', table, known)}")
            tables[table] |= values
    return tables


def read_model_tables(
    config: Path | None, overrides: list[str] | None, models: Sequence[str], known: Sequence[str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """For each model its tables of settings; where `config` is a folder, each model has its own file there.

    --set overrides a file. The file of a model holds the tables of that model and of its training.
    """
    if config is None or not config.is_dir():
        shared = read_tables(config, overrides, known)
        return dict.fromkeys(models, shared)
    from lightgc2n.experiments.plans import files_of_models, tables_of_model

    changes = read_tables(None, overrides, known)
    files = files_of_models(config)
    say(f"{config}: settings for {', '.join(name for name in models if name in files) or 'none of the models'}")
    tables = {name: tables_of_model(files.get(name), name) for name in models}
    return {
        name: {table: own.get(table, {}) | values for table, values in changes.items()} for name, own in tables.items()
    }
