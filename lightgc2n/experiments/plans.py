"""A plan: many runs in one TOML file.

    data = ["E", "V"]                         # prepared datasets, seen from the plan file
    model = ["lightgc2n", "lightgc2n-wo-a"]
    seed = [0, 1, 2]
    [training]
    epochs = 100
    [lightgc2n]
    latent_users = 4

Each of `data`, `domain`, `model` and `seed` may be a list, and every combination is a run, called
DATA[-DOMAIN]-MODEL-seedN. A `[[run]]` takes all that it does not say from the top; its `name` then stands for MODEL.
`config` names a folder with one TOML file a model; what the plan says itself beats such a file. A floor
is a run too: it is counted and tested.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from lightgc2n import zoo
from lightgc2n.config import read_settings, read_toml, unknown_name
from lightgc2n.data.splits import SplitConfig
from lightgc2n.errors import SettingError
from lightgc2n.experiments.model_settings import files_of_models, tables_of_model
from lightgc2n.training.runs import RunPlan
from lightgc2n.training.steps import TrainingConfig

AXES: dict[str, type[Any]] = {"data": str, "domain": str, "model": str, "seed": int}
DEFAULTS = {"domain": "", "model": "lightgc2n", "seed": 0}
TABLES = ("split", "training", *zoo.ZOO)


def read_plan(path: Path) -> dict[str, RunPlan]:
    """The runs of a plan file by name, in its order."""
    if not path.is_file():
        raise SettingError(f"{path}: no such file. Give --plan an existing TOML file.")
    top = read_toml(path)
    entries = top.pop("run", [{}])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SettingError(f"{path}: a run stands under [[run]], in two pairs of brackets.")
    _refuse_unknown(top, [*AXES, *TABLES, "config", "run"], str(path))
    runs: dict[str, RunPlan] = {}
    for number, entry in enumerate(entries, start=1):
        where = f"{path}: run {number}" if entry else str(path)
        _refuse_unknown(entry, [*AXES, *TABLES, "config", "name"], where)
        for name, plan in _expanded(top, entry, path.parent, where):
            if name in runs:
                raise SettingError(f"{where}: a second run called {name}. Give one of them another `name`.")
            runs[name] = plan
    return runs


def choose_run(runs: Mapping[str, RunPlan], name: str, path: Path) -> RunPlan:
    """The run so called."""
    if name not in runs:
        raise SettingError(f"{path}: {unknown_name('run', name, runs)}")
    return runs[name]


def _expanded(top: dict[str, Any], entry: dict[str, Any], folder: Path, where: str) -> Iterator[tuple[str, RunPlan]]:
    """Every combination of what an entry lists."""
    axes = {**DEFAULTS, **{axis: found[axis] for found in (top, entry) for axis in AXES if axis in found}}
    if "data" not in axes:
        raise SettingError(f'{where}: says no data. Write data = "DIR", a prepared dataset seen from the plan file.')
    values = [_several(axis, axes[axis], where) for axis in AXES]
    tables = {name: _table(name, top, where) | _table(name, entry, where) for name in TABLES}
    name = _name(entry, values[2], where)
    files = _files({**top, **entry}.get("config"), folder, where)
    for data, domain, model, seed in product(*values):
        parts = [(folder / data).resolve().name, domain, name or model, f"seed{seed}"]
        of_file = tables_of_model(files.get(model), model)
        merged = {table: of_file.get(table, {}) | said for table, said in tables.items()}
        yield "-".join(filter(None, parts)), _run(folder / data, domain, model, seed, merged, where)


def _run(data: Path, domain: str, model: str, seed: int, tables: dict[str, dict[str, Any]], where: str) -> RunPlan:
    entry = zoo.ZOO[model]
    read_settings(entry.settings, {**entry.preset, **tables[model]}, where=f"{where}, {model}")
    return RunPlan(
        data=data,
        model=model,
        domain=domain,
        settings=tables[model],
        split=read_settings(SplitConfig, tables["split"], where=f"{where}, split"),
        training=read_settings(TrainingConfig, {**tables["training"], "seed": seed}, where=f"{where}, training"),
    )


def _files(config: Any, folder: Path, where: str) -> dict[str, Path]:
    """The file of each model in the folder that a plan names."""
    if config is None:
        return {}
    if not isinstance(config, str) or not (folder / config).is_dir():
        raise SettingError(f"{where}: config must name a folder with one TOML file a model, found {config!r}.")
    return files_of_models(folder / config)


def _several(axis: str, given: Any, where: str) -> list[Any]:
    """What one axis lists; a single value stands for a list of one."""
    values = given if isinstance(given, list) else [given]
    for value in values:
        if type(value) is not AXES[axis]:
            raise SettingError(f"{where}: {axis} must be {AXES[axis].__name__} or a list of it, found {value!r}.")
        if axis == "model" and value not in zoo.ZOO:
            raise SettingError(f"{where}: {unknown_name('model', str(value), zoo.ZOO)}")
    if not values or len(set(values)) < len(values):
        raise SettingError(f"{where}: {axis} must list each of its values once, found {values!r}.")
    return values


def _table(name: str, found: dict[str, Any], where: str) -> dict[str, Any]:
    table = found.get(name, {})
    if not isinstance(table, dict):
        raise SettingError(f"{where}: {name} must be a table of settings, found {table!r}.")
    if name == "training" and "seed" in table:
        raise SettingError(f"{where}: training.seed is the plan's `seed`. Write it there, alone or as a list.")
    return table


def _name(entry: dict[str, Any], models: list[str], where: str) -> str:
    """What stands for the model in the names of an entry's runs."""
    name = entry.get("name", "")
    if not isinstance(name, str) or name.startswith(".") or set(name) & set('/\\:*?"<>|\n'):
        raise SettingError(f"{where}: name must be text that can name a folder, found {name!r}.")
    if name and len(models) > 1:
        raise SettingError(f"{where}: name stands for one model, found {len(models)}. Write a [[run]] for each.")
    return name


def _refuse_unknown(found: dict[str, Any], known: list[str], where: str) -> None:
    for name in found:
        if name not in known:
            raise SettingError(f"{where}: {unknown_name('name', name, known)}")
