"""The settings of a pipeline: a TOML file whose paths are relative to its folder."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lightgc2n.config import read_settings, read_toml, setting, toml_value, unknown_name
from lightgc2n.errors import SettingError
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.store.databases import is_postgres

PIPELINE, SPLIT, TRAINING = "pipeline", "split", "training"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """The table [pipeline] of the file."""

    store: str = setting("", help="The event store: a path for SQLite, or postgresql://USER@HOST/DATABASE.")
    folder: str = setting("pipeline", help="The folder for rounds, log and the link `live`; the pipeline creates it.")
    start_from: str = setting("", help="A trained run to begin with; empty: the first round trains `model`.")
    model: str = setting("lightgc2n-plus", help="The model that the first round trains.")
    challenger: str = setting(
        "refresh",
        choices=("refresh", "train"),
        help="refresh: the live weights with newer counts; train: a warm start from them, and newer counts.",
    )
    judge_hours: float = setting(
        24.0, at_least=0.01, at_most=87_600.0, help="Length of the newest period, on which models are judged."
    )
    least_questions: int = setting(100, at_least=1, help="With fewer events to judge on, the live model stays.")
    most_questions: int = setting(20_000, at_least=1, help="Judge on a random sample of at most this many events.")
    tolerance: float = setting(
        0.5, at_least=0.0, help="Points of MRR@20 by which the challenger may be lower, if the loss is not significant."
    )
    keep: int = setting(
        3, at_least=2, help="Bundles to keep, the live one included; `rollback` returns to one of them."
    )
    catalogue: str = setting("", help="A prepared dataset whose titles and categories the bundles get.")
    tombstones: str = setting("", help="A file of `forget --tombstones`; its accounts are left out.")
    int8: bool = setting(False, help="Quantise item tables of bundles to 8 bits.")
    people: bool = setting(True, help="Put the model that finds people into bundles.")


@dataclass(frozen=True)
class PipelineSettings:
    """A read settings file."""

    file: Path
    pipeline: PipelineConfig
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)  # [split], [training] and the model's own table

    @property
    def folder(self) -> Path:
        return self._path(self.pipeline.folder)

    @property
    def store(self) -> str:
        """The address of the store."""
        return self.pipeline.store if is_postgres(self.pipeline.store) else str(self._path(self.pipeline.store))

    def path(self, name: str) -> Path | None:
        """The path in an optional setting."""
        value = getattr(self.pipeline, name)
        return self._path(value) if value else None

    def described(self) -> dict[str, Any]:
        """Everything that the outcome of a round depends on; the address of the store may hold a password."""
        return {**asdict(self.pipeline), "store": "", "tables": self.tables}

    def _path(self, value: str) -> Path:
        return self.file.parent / value  # an absolute path stays as it is


def read_pipeline(file: Path) -> PipelineSettings:
    """Read a settings file. Raise an error for an unknown table or name."""
    if not file.exists():
        raise SettingError(f"{file}: no such file. Create one with: lightgc2n pipeline init {file}")
    tables = read_toml(file)
    config = read_settings(PipelineConfig, _table(tables, PIPELINE, file), f"{file} [{PIPELINE}]")
    if not config.store:
        raise SettingError(f'{file}: [{PIPELINE}] has no store. Add: store = "events.db"')
    known = [PIPELINE, SPLIT, TRAINING, config.model]
    for name in tables:
        if name not in known:
            raise SettingError(f"{file}: {unknown_name('table', name, known)}")
    rest = {name: dict(_table(tables, name, file)) for name in known[1:]}
    return PipelineSettings(file, config, rest)


def _table(tables: dict[str, Any], name: str, file: Path) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise SettingError(f"{file}: {name} must be a table: [{name}].")
    return table


TEMPLATE = """\
# Renew with: lightgc2n pipeline run FILE
# Paths are relative to this file.

[pipeline]
store = {store}  # an SQLite file, or postgresql://USER@HOST/DATABASE
folder = "pipeline"            # rounds, log, and the link `live`: lightgc2n serve pipeline/live --store ...
start_from = ""                # a trained run; empty: the first round trains `model`
model = "lightgc2n-plus"
challenger = "refresh"         # refresh: newer counts, minutes. train: also a warm start from the live weights
judge_hours = 24.0             # models are judged on the newest hours, which neither has seen
least_questions = 100          # with fewer events to judge on, the live model stays
tolerance = 0.5                # points of MRR@20 that a challenger may be lower, if the loss is not significant
keep = 3                       # bundles to keep, the live one included
catalogue = ""                 # a prepared dataset whose titles the bundles get

[split]                        # of the first model
protocol = "time"              # learn from earlier events, select the checkpoint on later ones
test_share = 0.05

[training]                     # of challenger = "train" and of the first model
# epochs = 20
"""


def write_template(file: Path, store: str) -> None:
    """Write a settings file with the defaults; an existing file is never replaced."""
    with new_file(file) as temporary:
        temporary.write_text(TEMPLATE.format(store=toml_value(store)), encoding="utf-8")
