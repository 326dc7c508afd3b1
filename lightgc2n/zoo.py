"""Every model by name; the only module that knows them all."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from lightgc2n.baselines.counting import AccountMarkov, Markov, MarkovRecency, Popularity, Recency
from lightgc2n.baselines.floor import Floor
from lightgc2n.baselines.neighbours import ItemKnn, SessionKnn
from lightgc2n.config import read_settings, unknown_name
from lightgc2n.data.splits import Training
from lightgc2n.errors import DataError, SettingError


@dataclass(frozen=True)
class Entry:
    """A model of the zoo: its class, and the settings by which it differs from the class's defaults."""

    model: type[Floor]
    sees: frozenset[str]  # what the model can learn: favourites of all, tastes that items share, steps in their order
    is_floor: bool = True
    preset: Mapping[str, Any] = field(default_factory=dict)


ZOO: dict[str, Entry] = {
    "popularity": Entry(Popularity, frozenset({"favourites"})),
    "recency": Entry(Recency, frozenset({"tastes"})),
    "markov": Entry(Markov, frozenset({"tastes", "steps"})),
    "sequential-rules": Entry(Markov, frozenset({"tastes", "steps"}), preset={"reach": 10}),
    "account-markov": Entry(AccountMarkov, frozenset({"tastes", "steps"})),
    "markov-recency": Entry(MarkovRecency, frozenset({"tastes", "steps"})),
    "item-knn": Entry(ItemKnn, frozenset({"tastes"})),
    "session-knn": Entry(SessionKnn, frozenset({"tastes"})),
}


def choose_models(wanted: str) -> list[str]:
    """The names that `floors`, `all` or a list like `markov,recency` stands for."""
    if wanted == "all":
        return list(ZOO)
    if wanted == "floors":
        return [name for name, entry in ZOO.items() if entry.is_floor]
    names = list(dict.fromkeys(name.strip() for name in wanted.split(",")))
    for name in names:
        entry_of(name)
    return names


def entry_of(name: str) -> Entry:
    """The entry so called."""
    if name not in ZOO:
        raise SettingError(f"--models: {unknown_name('model', name, [*ZOO, 'floors', 'all'])}")
    return ZOO[name]


def model_config(name: str, changes: Mapping[str, Any] | None = None) -> Any:
    """The settings of a model, with some changed."""
    entry = entry_of(name)
    return read_settings(entry.model.settings, {**entry.preset, **(changes or {})}, where=name)


def refuse_unknown_tables(tables: Iterable[str], where: str) -> None:
    """Settings for a model that does not exist are refused, not passed over."""
    for table in tables:
        if table not in ZOO:
            raise SettingError(f"{where}: {unknown_name('model', table, ZOO)}")


def build(name: str, train: Training, changes: Mapping[str, Any] | None = None) -> Floor:
    """The model so called, made from training events."""
    return entry_of(name).model.build(model_config(name, changes), train)


def save(name: str, model: Floor, folder: Path) -> None:
    """Writes the model's settings and tensors to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    description = {"model": name, "config": asdict(model.config)}
    (folder / "model.json").write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, folder / "model.safetensors")


def load(folder: Path) -> tuple[str, Floor]:
    """The name and the model that `save` wrote."""
    try:
        description = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        name = description["model"]
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{folder}: holds no saved model (model.json, model.safetensors).") from None
    entry = entry_of(name)
    config = read_settings(entry.model.settings, description["config"], where=str(folder / "model.json"))
    return name, entry.model(config, load_file(folder / "model.safetensors"))
