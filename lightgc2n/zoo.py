"""Every model by name; the only module that knows them all."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from lightgc2n.baselines.comirec import ComiRec, ComiRecConfig
from lightgc2n.baselines.counting import AccountMarkov, Markov, MarkovRecency, Popularity, Recency, Trending
from lightgc2n.baselines.dagcn import DAGCN, DAGCNConfig
from lightgc2n.baselines.disenreason import DisenReasonConfig, DisenReasonStyle
from lightgc2n.baselines.floor import Floor
from lightgc2n.baselines.gru4rec import GRU4Rec, GRU4RecConfig
from lightgc2n.baselines.hrnn import HRNN, HRNNConfig
from lightgc2n.baselines.lightgcn import LightGCNConfig, build_lightgcn, restore_lightgcn
from lightgc2n.baselines.nais import NAISConfig, build_nais, restore_nais
from lightgc2n.baselines.ncf import NCFConfig, build_ncf, restore_ncf
from lightgc2n.baselines.neighbours import ItemKnn, SessionKnn
from lightgc2n.baselines.parallel import ParallelConfig, ParallelNet
from lightgc2n.baselines.sasrec import SASRec, SASRecConfig
from lightgc2n.baselines.tgsrec import TGSRec, TGSRecConfig
from lightgc2n.baselines.tidagcn import TiDAGCN, TiDAGCNConfig
from lightgc2n.config import read_settings, unknown_name
from lightgc2n.data.splits import Training
from lightgc2n.errors import DataError, SettingError
from lightgc2n.models.contract import Model
from lightgc2n.models.lightgc2n import LightGC2NConfig
from lightgc2n.models.plus import PlusConfig
from lightgc2n.models.plus_variants import PLUS_VARIANTS, build_plus, restore_plus
from lightgc2n.models.variants import VARIANTS, build_variant, restore_variant


@dataclass(frozen=True)
class Entry:
    """A model of the zoo: its settings, how it is made from training events and how from saved tensors."""

    settings: type[Any]
    build: Callable[[Any, Training], Model]
    restore: Callable[[Any, dict[str, Tensor]], Model]
    sees: frozenset[str]  # what the model can learn: favourites of all, tastes that items share, steps in their order
    is_floor: bool = False
    preset: Mapping[str, Any] = field(default_factory=dict)  # settings that differ from the defaults of `settings`


def _floor(model: type[Floor], *sees: str, **preset: Any) -> Entry:
    return Entry(model.settings, model.build, model, frozenset(sees), is_floor=True, preset=preset)


def _variant(name: str) -> Entry:
    build, restore = partial(build_variant, name), partial(restore_variant, name)
    return Entry(LightGC2NConfig, build, restore, frozenset({"tastes"}))


def _plus(name: str) -> Entry:
    build, restore = partial(build_plus, name), partial(restore_plus, name)
    return Entry(PlusConfig, build, restore, frozenset({"tastes", "steps"}))


def _ncf(name: str, **preset: Any) -> Entry:
    return Entry(NCFConfig, partial(build_ncf, name), partial(restore_ncf, name), frozenset({"tastes"}), preset=preset)


def _sasrec(**preset: Any) -> Entry:
    return Entry(SASRecConfig, SASRec.build, SASRec.restore, frozenset({"tastes", "steps"}), preset=preset)


def _parallel(**preset: Any) -> Entry:
    return Entry(ParallelConfig, ParallelNet.build, ParallelNet.restore, frozenset({"tastes", "steps"}), preset=preset)


ZOO: dict[str, Entry] = {
    "popularity": _floor(Popularity, "favourites"),
    "trending": _floor(Trending, "favourites"),
    "recency": _floor(Recency, "tastes"),
    "markov": _floor(Markov, "tastes", "steps"),
    "sequential-rules": _floor(Markov, "tastes", "steps", reach=10),
    "account-markov": _floor(AccountMarkov, "tastes", "steps"),
    "markov-recency": _floor(MarkovRecency, "tastes", "steps"),
    "item-knn": _floor(ItemKnn, "tastes"),
    "session-knn": _floor(SessionKnn, "tastes"),
    **{name: _variant(name) for name in VARIANTS},
    **{name: _plus(name) for name in PLUS_VARIANTS},
    "lightgcn": Entry(LightGCNConfig, build_lightgcn, restore_lightgcn, frozenset({"tastes"})),
    **{name: _ncf(name) for name in ("gmf", "mlp", "neumf")},
    "gmf-ce": _ncf("gmf", loss="softmax"),
    "nais": Entry(NAISConfig, build_nais, restore_nais, frozenset({"tastes"})),
    "gru4rec": Entry(GRU4RecConfig, GRU4Rec.build, GRU4Rec.restore, frozenset({"tastes", "steps"})),
    "hrnn": Entry(HRNNConfig, HRNN.build, HRNN.restore, frozenset({"tastes", "steps"})),
    "sasrec": _sasrec(),
    "sasrec-gbce": _sasrec(loss="gbce"),
    "comirec": Entry(ComiRecConfig, ComiRec.build, ComiRec.restore, frozenset({"tastes", "steps"})),
    "pi-net": _parallel(),
    "psjnet-1": _parallel(),
    "psjnet-2": _parallel(transfer="split-and-join"),
    "da-gcn": Entry(DAGCNConfig, DAGCN.build, DAGCN.restore, frozenset({"tastes"})),
    "tida-gcn": Entry(TiDAGCNConfig, TiDAGCN.build, TiDAGCN.restore, frozenset({"tastes"})),
    "disenreason-style": Entry(
        DisenReasonConfig, DisenReasonStyle.build, DisenReasonStyle.restore, frozenset({"tastes", "steps"})
    ),
    "tgsrec": Entry(TGSRecConfig, TGSRec.build, TGSRec.restore, frozenset({"tastes", "steps"})),
}


def choose_models(wanted: str) -> list[str]:
    """The names that `floors`, `all` or a list like `markov,recency` stands for."""
    if wanted == "all":
        return list(ZOO)
    if wanted == "floors":
        return [name for name, entry in ZOO.items() if entry.is_floor]
    names: list[str] = []
    for part in (part.strip() for part in wanted.split(",")):
        names += choose_models(part) if part in ("all", "floors") else [part]
    for name in names:
        entry_of(name)
    return list(dict.fromkeys(names))


def entry_of(name: str) -> Entry:
    """The entry so called."""
    if name not in ZOO:
        raise SettingError(unknown_name("model", name, ZOO))
    return ZOO[name]


def model_config(name: str, changes: Mapping[str, Any] | None = None) -> Any:
    """The settings of a model, with some changed."""
    entry = entry_of(name)
    return read_settings(entry.settings, {**entry.preset, **(changes or {})}, where=name)


def build(name: str, train: Training, changes: Mapping[str, Any] | None = None) -> Model:
    """The model so called, made from training events."""
    return entry_of(name).build(model_config(name, changes), train)


def save(name: str, model: Model, folder: Path) -> None:
    """Writes the model's settings and tensors to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    description = {"model": name, "config": asdict(model.config)}
    (folder / "model.json").write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, folder / "model.safetensors")


def load(folder: Path) -> tuple[str, Model]:
    """The name and the model that `save` wrote."""
    try:
        description = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        name = description["model"]
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{folder}: holds no saved model (model.json, model.safetensors).") from None
    entry = entry_of(name)
    config = read_settings(entry.settings, description["config"], where=str(folder / "model.json"))
    model = entry.restore(config, load_file(folder / "model.safetensors"))
    model.eval()
    return name, model
