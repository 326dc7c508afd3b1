"""The options of an experiment command, and the plan they give: one `[[run]]` per model, dataset and setting."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from lightgc2n import zoo
from lightgc2n.config import toml_value, unknown_name
from lightgc2n.data.dataset import load_dataset
from lightgc2n.errors import SettingError
from lightgc2n.experiments.plans import files_of_models, tables_of_model
from lightgc2n.experiments.results import run_name

Tables = Mapping[str, Mapping[str, Any]]
PROTOCOLS = ("auto", "last", "time", "cold-accounts", "windows")
OF_KIND = {"logs": "last", "windows": "windows"}


@dataclass(frozen=True)
class Source:
    """The facts about a prepared dataset that a plan needs."""

    folder: Path
    kind: str
    domains: tuple[str, ...]
    targets_apart: bool  # the source has a separate target for each domain
    timed: bool = False

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def two_domains(self) -> bool:
        return len(self.domains) > 1


@dataclass(frozen=True)
class Setup:
    """The options of the command; the experiment decides the rest."""

    sources: tuple[Source, ...]
    protocol: str = "auto"
    seeds: int | None = None
    budget: int | None = None  # maximum of epochs of a run
    models: str = ""
    config: Path | None = None
    changes: Tables = field(default_factory=dict)  # of --set: table -> name -> value
    quick: bool = False

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise SettingError(f"--protocol: {unknown_name('protocol', self.protocol, PROTOCOLS)}")
        for table in self.changes:
            if table not in (known := ("split", "training", *zoo.ZOO)):
                raise SettingError(f"--set: {unknown_name('table', table, known)}")

    def chosen(self, models: Iterable[str]) -> list[str]:
        """Return the models of --models, or these by default."""
        return zoo.choose_models(self.models) if self.models else list(models)

    def protocol_of(self, source: Source) -> str:
        return OF_KIND[source.kind] if self.protocol == "auto" else self.protocol

    def views(self) -> Iterator[tuple[Source, str]]:
        """Yield each dataset with one domain, and each domain of the others; a quick run uses the first only."""
        for source in self.sources:
            domains = source.domains if source.two_domains else ("",)
            yield from ((source, domain) for domain in (domains[:1] if self.quick else domains))


@dataclass(frozen=True)
class Entry:
    """One run of an experiment, before seeds."""

    source: Source
    model: str
    domain: str = ""
    label: str = ""  # replaces the model in the name of the run
    split: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The plan's name of the run without its seed."""
        return run_name(self.source.name, self.domain, self.label or self.model)


def source_of(folder: Path) -> Source:
    """The dataset in `folder`."""
    dataset = load_dataset(folder)
    names = tuple(domain.name for domain in dataset.domains)
    return Source(folder, dataset.kind, names, dataset.targets is not None, dataset.times is not None)


def sources_of(folders: Iterable[Path]) -> tuple[Source, ...]:
    """Return the datasets; raise an error if two have the same name, because runs are named after them."""
    sources = tuple(source_of(folder) for folder in folders)
    for name in {source.name for source in sources}:
        if (count := sum(source.name == name for source in sources)) > 1:
            raise SettingError(f"--data: {count} folders called {name}. Rename one: runs are named after them.")
    return sources


def settings_file(config: Path | None, entry: Entry) -> Path | None:
    """Return the settings file of a run from the folder of its domain or dataset, or from `config` itself."""
    if config is None:
        return None
    names = (f"{entry.source.name}-{entry.domain}", entry.domain, entry.source.name)
    for folder in [*(config / name for name in names if name), config]:
        files = _files(folder)
        if entry.model in files:
            return files[entry.model]
    return None


@cache
def _files(folder: Path) -> dict[str, Path]:
    return files_of_models(folder) if any(folder.glob("*.toml")) else {}


def plan_lines(
    setup: Setup, entries: Iterable[Entry], seeds: int, epochs: int, data: Mapping[str, str]
) -> Iterator[str]:
    """The plan of an experiment, in TOML.

    Args:
        seeds: the number of seeds, unless the setup has one.
        epochs: the maximum of a run, unless its settings file, the setup or the entry has one.
        data: the folder of each dataset, relative to the plan.
    """
    for entry in entries:
        path = settings_file(setup.config, entry)
        filed = tables_of_model(path, path.stem) if path else {}
        budget = {"epochs": setup.budget} if setup.budget else {}
        simple = zoo.ZOO[entry.model].is_simple
        tables: dict[str, Mapping[str, Any]] = {
            "split": {"protocol": setup.protocol_of(entry.source), **setup.changes.get("split", {}), **entry.split},
            "training": {"epochs": epochs, **filed.get("training", {}), **budget, **setup.changes.get("training", {}),
                         **entry.training},
            entry.model: {**(filed[path.stem] if path else {}), **setup.changes.get(entry.model, {}),
                          **entry.settings},
        }  # fmt: skip
        yield "[[run]]"
        yield f"data = {toml_value(data[entry.source.name])}"
        yield f"model = {toml_value(entry.model)}"
        yield from (
            f"{name} = {toml_value(value)}"
            for name, value in (("domain", entry.domain), ("name", entry.label))
            if value
        )
        count = 1 if simple else setup.seeds or seeds  # a simple baseline uses no random numbers
        yield f"seed = {toml_value(list(range(count)))}"
        yield from (f"{name} = {toml_value(table)}" for name, table in tables.items() if table)
        yield ""
