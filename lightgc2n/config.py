"""Settings: TOML and `name=value` overrides, read strictly into frozen dataclasses.

A field made by `setting` holds its type, default, bounds and help text.
"""

import dataclasses
import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from lightgc2n.errors import SettingError

Settings = TypeVar("Settings")
MOST_NAMED = 16  # names that an error lists in full
LARGEST_SEED = 2**32 - 1  # accepted by every random generator


def setting(
    default: Any,
    *,
    help: str,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """Return a dataclass field with bounds and a help text."""
    bounds = {"help": help, "at_least": at_least, "at_most": at_most, "choices": choices}
    return dataclasses.field(default=default, metadata=bounds)


def read_settings(kind: type[Settings], values: Mapping[str, Any], where: str) -> Settings:
    """Fill `kind` from `values`; raise an error for an unknown name, a wrong type or a value out of bounds.

    Args:
        where: the source of the values for error messages, for example a file name.
    """
    known = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    types = get_type_hints(kind)
    for name in values:
        if name not in known:
            raise SettingError(f"{where}: {unknown_name('setting', name, known)}")
    checked = {name: _checked(known[name], types[name], value, where) for name, value in values.items()}
    return kind(**checked)


def read_toml(path: Path) -> dict[str, Any]:
    """Read the tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingError(f"{path}: no such file. Give --config an existing TOML file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SettingError(f"{path}: not a TOML file: {problem}.") from None


def toml_value(value: Any) -> str:
    """Format a value in TOML syntax."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {toml_value(inner)}" for name, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | str) else repr(value)


def parse_overrides(pairs: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Parse `["a.b=1"]` into `{"a": {"b": 1}}`; values are TOML or, failing that, plain text."""
    tables: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        table, dot, name = path.strip().rpartition(".")
        if not (equals and dot and table and name):
            raise SettingError(f"--set {pair}: expected TABLE.NAME=VALUE, for example markov.reach=1.")
        tables.setdefault(table, {})[name] = _toml_value(text.strip())
    return tables


def read_tables(config: Path | None, overrides: list[str] | None, known: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The settings of a TOML file and of --set by table; every known table is present, an unknown one is an error."""
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


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Return an error sentence that names the unknown `name` and suggests known ones: of many, the nearest three."""
    known = sorted(known)
    near = get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    if len(known) > MOST_NAMED:
        return f"unknown {what} {name!r}.{hint} Nearest: {', '.join(get_close_matches(name, known, n=3, cutoff=0))}."
    return f"unknown {what} {name!r}.{hint} Known: {', '.join(known)}."


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _checked(field: "dataclasses.Field[Any]", kind: Any, value: Any, where: str) -> Any:
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise SettingError(f"{where}: {field.name} must be {kind.__name__}, found {value!r}.")
    low, high, choices = (field.metadata.get(bound) for bound in ("at_least", "at_most", "choices"))
    if kind is float and not math.isfinite(value):
        raise SettingError(f"{where}: {field.name} must be a finite number, found {value!r}.")
    if low is not None and value < low:
        raise SettingError(f"{where}: {field.name} must be at least {low}, found {value!r}.")
    if high is not None and value > high:
        raise SettingError(f"{where}: {field.name} must be at most {high}, found {value!r}.")
    if choices is not None and value not in choices:
        raise SettingError(f"{where}: {unknown_name(f'value of {field.name}', value, choices)}")
    return value
