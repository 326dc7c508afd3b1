"""All models by name; the only module that knows every model."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from lightgc2n.baselines.comirec import ComiRec, ComiRecConfig
from lightgc2n.baselines.counting import AccountMarkov, Markov, MarkovRecency, Popularity, Recency, Trending
from lightgc2n.baselines.da_gcn import DAGCN, DAGCNConfig
from lightgc2n.baselines.disenreason import DisenReasonConfig, DisenReasonStyle
from lightgc2n.baselines.gru4rec import GRU4Rec, GRU4RecConfig
from lightgc2n.baselines.hrnn import HRNN, HRNNConfig
from lightgc2n.baselines.lightgcn import LightGCNConfig, build_lightgcn, restore_lightgcn
from lightgc2n.baselines.nais import NAISConfig, build_nais, restore_nais
from lightgc2n.baselines.ncf import NCFConfig, build_ncf, restore_ncf
from lightgc2n.baselines.neighbours import ItemKnn, SessionKnn
from lightgc2n.baselines.pi_net.pi_net import ParallelConfig, ParallelNet
from lightgc2n.baselines.sasrec import SASRec, SASRecConfig
from lightgc2n.baselines.simple import SimpleBaseline
from lightgc2n.baselines.tgsrec.tgsrec import TGSRec, TGSRecConfig
from lightgc2n.baselines.tida_gcn import TiDAGCN, TiDAGCNConfig
from lightgc2n.config import read_settings, unknown_name
from lightgc2n.data.splits import Training
from lightgc2n.errors import SettingError, option
from lightgc2n.models.contract import Model
from lightgc2n.models.lightgc2n.ablations import VARIANTS, build_variant, restore_variant
from lightgc2n.models.lightgc2n.lightgc2n import LightGC2NConfig
from lightgc2n.models.plus.ablations import PLUS_VARIANTS, build_plus, restore_plus
from lightgc2n.models.plus.plus import PlusConfig


@dataclass(frozen=True)
class Entry:
    """A model: its settings, and the functions that build it from training events and from saved tensors."""

    settings: type[Any]
    build: Callable[[Any, Training], Model]
    restore: Callable[[Any, dict[str, Tensor]], Model]
    sees: frozenset[str]  # patterns that it can learn: favourites (popular items), tastes (clusters), steps (order)
    is_simple: bool = False  # a simple baseline, which counts and has no gradients
    exports: bool = False  # can be written to a bundle
    preset: Mapping[str, Any] = field(default_factory=dict)  # settings that differ from the defaults
    divided_by: str = ""  # how several workers train it: each some accounts, or some rows of a batch; "": one machine


def _simple(model: type[SimpleBaseline], *sees: str, exports: bool = True, **preset: Any) -> Entry:
    return Entry(model.settings, model.build, model, frozenset(sees), is_simple=True, exports=exports, preset=preset)


def _variant(name: str) -> Entry:
    build, restore = partial(build_variant, name), partial(restore_variant, name)
    return Entry(LightGC2NConfig, build, restore, frozenset({"tastes"}), exports=True, divided_by="accounts")


def _plus(name: str) -> Entry:
    build, restore = partial(build_plus, name), partial(restore_plus, name)
    return Entry(PlusConfig, build, restore, frozenset({"tastes", "steps"}), exports=True, divided_by="rows")


def _ncf(name: str, **preset: Any) -> Entry:
    return Entry(NCFConfig, partial(build_ncf, name), partial(restore_ncf, name), frozenset({"tastes"}), preset=preset)


def _sasrec(**preset: Any) -> Entry:
    sees = frozenset({"tastes", "steps"})
    return Entry(SASRecConfig, SASRec.build, SASRec.restore, sees, exports=True, preset=preset, divided_by="rows")


def _parallel(**preset: Any) -> Entry:
    return Entry(ParallelConfig, ParallelNet.build, ParallelNet.restore, frozenset({"tastes", "steps"}), preset=preset)


ALIASES = {"psjnet-1": "pi-net"}  # PSJNet-I is the same network; runs and plans of the old name still load

ZOO: dict[str, Entry] = {
    "popularity": _simple(Popularity, "favourites"),
    "trending": _simple(Trending, "favourites"),
    "recency": _simple(Recency, "tastes"),
    "markov": _simple(Markov, "tastes", "steps"),
    "sequential-rules": _simple(Markov, "tastes", "steps", reach=10),
    "account-markov": _simple(AccountMarkov, "tastes", "steps", exports=False),  # it holds the logs of accounts
    "markov-recency": _simple(MarkovRecency, "tastes", "steps"),
    "item-knn": _simple(ItemKnn, "tastes"),
    "session-knn": _simple(SessionKnn, "tastes", exports=False),  # it holds the logs of accounts
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
    "psjnet-2": _parallel(transfer="split-and-join"),
    "da-gcn": Entry(DAGCNConfig, DAGCN.build, DAGCN.restore, frozenset({"tastes"})),
    "tida-gcn": Entry(TiDAGCNConfig, TiDAGCN.build, TiDAGCN.restore, frozenset({"tastes"})),
    "disenreason-style": Entry(
        DisenReasonConfig, DisenReasonStyle.build, DisenReasonStyle.restore, frozenset({"tastes", "steps"})
    ),
    "tgsrec": Entry(TGSRecConfig, TGSRec.build, TGSRec.restore, frozenset({"tastes", "steps"})),
}


ABOUT = {
    "popularity": "the most frequent items",
    "trending": "recent popularity, with a half-life selected on validation events",
    "recency": "the items of the history, the newest first",
    "markov": "what followed the newest item in the logs of all accounts",
    "sequential-rules": "what followed within ten events",
    "account-markov": "what followed the newest item in the account's own log, then in all logs",
    "markov-recency": "markov and recency, weighted on validation events",
    "item-knn": "items that the same accounts watched or bought",
    "session-knn": "items of the most similar histories",
    "lightgc2n": "the paper's model: graph capsules, then subspace alignment (Zhang et al., AAAI 2025)",
    "lightgc2n-plus": "ours: order, people, repeats and trends, blended with counted evidence; the default",
    "lightgcn": "LightGCN: graph convolution of accounts and items",
    "gmf": "NCF: product of account and item vectors",
    "mlp": "NCF: layers over account and item vectors",
    "neumf": "NCF: gmf and mlp together",
    "gmf-ce": "gmf with a softmax over all items",
    "nais": "attention over the items of the history",
    "gru4rec": "a recurrent network reads the log event by event",
    "hrnn": "a recurrent network within sessions and one across them; needs times for sessions",
    "sasrec": "self-attention over the history",
    "sasrec-gbce": "sasrec with sampled negatives and a calibrated loss",
    "comirec": "several interest vectors per account",
    "pi-net": "parallel networks with a shared-account filter; one or two domains",
    "psjnet-2": "pi-net with split-and-join transfer; one or two domains",
    "da-gcn": "graph convolution with domain attention",
    "tida-gcn": "da-gcn with time intervals; needs times to use them",
    "disenreason-style": "disentangled latent users, after DisenReason",
    "tgsrec": "temporal graph attention; needs times to use them",
}


def about(name: str) -> str:
    """What a model does, in one line."""
    base, _, part = name.partition("-wo-")
    return f"ablation: {base} without {part.upper() if base == 'lightgc2n' else part}" if part else ABOUT[name]


SIMPLE = ("simple", "floors")


def choose_models(wanted: str) -> list[str]:
    """The models that `simple`, `all` or a list such as `markov,recency` names; `floors` is an alias of `simple`."""
    if wanted == "all":
        return list(ZOO)
    if wanted in SIMPLE:
        return [name for name, entry in ZOO.items() if entry.is_simple]
    names: list[str] = []
    for part in (part.strip() for part in wanted.split(",")):
        names += choose_models(part) if part in ("all", *SIMPLE) else [part]
    for name in names:
        if ALIASES.get(name, name) not in ZOO:
            raise _unknown(name, [*ZOO, "simple", "all"])
    return list(dict.fromkeys(names))


def _unknown(name: str, known: Iterable[str]) -> SettingError:
    lists = option("lightgc2n models", "lightgc2n.list_models()")
    return SettingError(f"{unknown_name('model', name, known)} {lists} lists all of them.")


def entry_of(name: str) -> Entry:
    """The entry of a model.

    Raises:
        SettingError: no model has this name.
    """
    name = ALIASES.get(name, name)
    if name not in ZOO:
        raise _unknown(name, ZOO)
    return ZOO[name]


def model_config(name: str, changes: Mapping[str, Any] | None = None) -> Any:
    """The settings of a model, with `changes` applied."""
    entry = entry_of(name)
    return read_settings(entry.settings, {**entry.preset, **(changes or {})}, where=name)


def build(name: str, train: Training, changes: Mapping[str, Any] | None = None) -> Model:
    """Build a model from training events."""
    return entry_of(name).build(model_config(name, changes), train)
