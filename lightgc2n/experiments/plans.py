"""A plan: many runs in one TOML file.

    data = ["E", "V"]                         # prepared datasets, relative to the plan file
    model = ["lightgc2n", "lightgc2n-wo-a"]
    seed = [0, 1, 2]
    [training]
    epochs = 100
    [lightgc2n]
    latent_users = 4

Each of `data`, `domain`, `model` and `seed` may be a list, and every combination is a run in the folder
DATA[-DOMAIN]-MODEL-seedN. A `[[run]]` inherits what it leaves out from the top level; its `name` replaces MODEL.
`config` names a folder with one TOML file per model; settings in the plan override such a file. A simple baseline is a
run too: it is built and tested.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from lightgc2n import zoo
from lightgc2n.config import read_settings, read_tables, read_toml, unknown_name
from lightgc2n.data.splits import SplitConfig
from lightgc2n.errors import SettingError
from lightgc2n.experiments.results import run_name
from lightgc2n.progress import say
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.runs import RunPlan

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
        raise SettingError(f"{path}: write [[run]] with two pairs of brackets.")
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
    """The run with this name."""
    if name not in runs:
        raise SettingError(f"{path}: {unknown_name('run', name, runs)}")
    return runs[name]


def _expanded(top: dict[str, Any], entry: dict[str, Any], folder: Path, where: str) -> Iterator[tuple[str, RunPlan]]:
    """Every combination of the values that an entry lists."""
    axes = {**DEFAULTS, **{axis: table[axis] for table in (top, entry) for axis in AXES if axis in table}}
    if "data" not in axes:
        raise SettingError(f'{where}: no data. Write data = "DIR", a prepared dataset, relative to the plan file.')
    values = [_several(axis, axes[axis], where) for axis in AXES]
    tables = {name: _table(name, top, where) | _table(name, entry, where) for name in TABLES}
    name = _name(entry, values[2], where)
    files = _files({**top, **entry}.get("config"), folder, where)
    for data, domain, model, seed in product(*values):
        run = run_name((folder / data).resolve().name, domain, name or model)
        of_file = tables_of_model(files.get(model), model)
        merged = {table: of_file.get(table, {}) | values for table, values in tables.items()}
        yield f"{run}-seed{seed}", replace(_run(folder / data, domain, model, seed, merged, where), label=name or model)


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
        raise SettingError(f"{where}: config must name a folder with one TOML file per model, found {config!r}.")
    return files_of_models(folder / config)


def _several(axis: str, given: Any, where: str) -> list[Any]:
    """The values of one axis; a single value counts as a list of one."""
    values = given if isinstance(given, list) else [given]
    for value in values:
        if type(value) is not AXES[axis]:
            raise SettingError(f"{where}: {axis} must be {AXES[axis].__name__} or a list of it, found {value!r}.")
        if axis == "model" and value not in zoo.ZOO:
            raise SettingError(f"{where}: {unknown_name('model', str(value), zoo.ZOO)}")
    if not values or len(set(values)) < len(values):
        raise SettingError(f"{where}: {axis} must list each of its values once, found {values!r}.")
    return values


def _table(name: str, tables: dict[str, Any], where: str) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise SettingError(f"{where}: {name} must be a table of settings, found {table!r}.")
    if name == "training" and "seed" in table:
        raise SettingError(f"{where}: training.seed is the plan's `seed`. Write it there, alone or as a list.")
    return table


def _name(entry: dict[str, Any], models: list[str], where: str) -> str:
    """The name that replaces the model in the names of an entry's runs."""
    name = entry.get("name", "")
    if not isinstance(name, str) or name.startswith(".") or set(name) & set('/\\:*?"<>|\n'):
        raise SettingError(f"{where}: name must be text that can name a folder, found {name!r}.")
    if name and len(models) > 1:
        raise SettingError(f"{where}: name replaces one model, found {len(models)}. Write a [[run]] for each.")
    return name


def _refuse_unknown(table: dict[str, Any], known: list[str], where: str) -> None:
    for name in table:
        if name not in known:
            raise SettingError(f"{where}: {unknown_name('name', name, known)}")


def files_of_models(folder: Path) -> dict[str, Path]:
    """The file of each model that has one; an ablation without its own uses that of the full model."""
    files = {path.stem: path for path in sorted(folder.glob("*.toml"))}
    for name, path in files.items():
        if name not in zoo.ZOO:
            raise SettingError(f"{path}: {unknown_name('model', name, zoo.ZOO)}")
    if not files:
        raise SettingError(
            f"{folder}: holds no MODEL.toml. Make one with: lightgc2n tune ... --save {folder}/MODEL.toml"
        )
    full = {name: name.partition("-wo-")[0] for name in zoo.ZOO}  # ablation -> the model without the ablation
    return {name: files[full[name]] for name in zoo.ZOO if full[name] in files} | files


def tables_of_model(path: Path | None, model: str) -> dict[str, dict[str, Any]]:
    """The settings of one model and of its training; both are empty for a model without a file."""
    named = path.stem if path else model
    tables: dict[str, dict[str, Any]] = {named: {}, "training": {}}
    for table, values in (read_toml(path) if path else {}).items():
        if table not in tables:
            raise SettingError(f"{path}: {unknown_name('table', table, tables)}")
        tables[table] |= values
    return {model: tables[named], "training": tables["training"]}


def read_model_tables(
    config: Path | None, overrides: list[str] | None, models: Sequence[str], known: Sequence[str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """For each model its tables of settings; where `config` is a folder, each model has its own file there.

    --set overrides a file. The file of a model holds the tables of that model and of its training.
    """
    if config is None or not config.is_dir():
        shared = read_tables(config, overrides, known)
        return dict.fromkeys(models, shared)
    changes = read_tables(None, overrides, known)
    files = files_of_models(config)
    say(f"{config}: settings for {', '.join(name for name in models if name in files) or 'none of the models'}")
    tables = {name: tables_of_model(files.get(name), name) for name in models}
    return {
        name: {table: own.get(table, {}) | values for table, values in changes.items()} for name, own in tables.items()
    }
