"""A folder of settings with one TOML file a model, as a search writes them."""

from pathlib import Path
from typing import Any

from lightgc2n import zoo
from lightgc2n.config import read_toml, unknown_name
from lightgc2n.errors import SettingError


def files_of_models(folder: Path) -> dict[str, Path]:
    """The file of each model that has one; an ablation without its own takes that of the whole model."""
    files = {path.stem: path for path in sorted(folder.glob("*.toml"))}
    for name, path in files.items():
        if name not in zoo.ZOO:
            raise SettingError(f"{path}: {unknown_name('model', name, zoo.ZOO)}")
    if not files:
        raise SettingError(
            f"{folder}: holds no MODEL.toml. Make one with: lightgc2n tune ... --save {folder}/MODEL.toml"
        )
    ablations = {name: files[whole_of(name)] for name in zoo.ZOO if whole_of(name) in files}
    return ablations | files


def whole_of(model: str) -> str:
    """The model that an ablation leaves something out of; any other model itself."""
    return model.partition("-wo-")[0]


def tables_of_model(path: Path | None, model: str) -> dict[str, dict[str, Any]]:
    """The settings of one model and of its training; both are empty for a model without a file."""
    named = path.stem if path else model
    tables: dict[str, dict[str, Any]] = {named: {}, "training": {}}
    for table, values in (read_toml(path) if path else {}).items():
        if table not in tables:
            raise SettingError(f"{path}: {unknown_name('table', table, tables)}")
        tables[table] |= values
    return {model: tables[named], "training": tables["training"]}
