"""LightGC²N-plus and its ablations: the same model, each with one part put in another's place."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lightgc2n.data.splits import Training
from lightgc2n.errors import SettingError
from lightgc2n.layers.followers import Followers, NoFollowers, count_followers
from lightgc2n.layers.memory import Memory, NoMemory
from lightgc2n.layers.same_person import NewestAlone, NobodyApart, PersonState, SamePerson
from lightgc2n.layers.trends import NoTrends, Trends, count_trends
from lightgc2n.models.plus import LightGC2NPlus, Parts, PlusConfig

Tables = Mapping[str, Tensor]
Make = Callable[[PlusConfig, Tables], Parts]


def _full(config: PlusConfig, tables: Tables) -> Parts:
    return Parts(
        SamePerson(config.views, config.latent_users, config.width),
        PersonState(config.width, config.views, config.max_length, config.dropout),
        Followers(tables["columns"], tables["counts"], tables["leaving"], config.newest, config.reach),
        Memory(len(tables["leaving"]), config.hidden),
        _trends(tables),
    )


def _trends(tables: Tables) -> Trends | NoTrends:
    """Where times are known."""
    if "trends.looked" not in tables:
        return NoTrends()
    looked, columns, rates = (tables[f"trends.{name}"] for name in ("looked", "columns", "rates"))
    return Trends(looked, columns, rates, mass=float(tables["favoured"].exp().sum()))


def _without_people(config: PlusConfig, tables: Tables) -> Parts:
    return replace(_full(config, tables), same_person=NobodyApart(config.views))


def _without_state(config: PlusConfig, tables: Tables) -> Parts:
    return replace(_full(config, tables), state=NewestAlone(config.width))


def _without_steps(config: PlusConfig, tables: Tables) -> Parts:
    return replace(_full(config, tables), followers=NoFollowers())


def _without_memory(config: PlusConfig, tables: Tables) -> Parts:
    return replace(_full(config, tables), memory=NoMemory())


def _without_trends(config: PlusConfig, tables: Tables) -> Parts:
    return replace(_full(config, tables), trends=NoTrends())


PLUS_VARIANTS: dict[str, Make] = {
    "lightgc2n-plus": _full,
    "lightgc2n-plus-wo-people": _without_people,
    "lightgc2n-plus-wo-state": _without_state,
    "lightgc2n-plus-wo-steps": _without_steps,
    "lightgc2n-plus-wo-memory": _without_memory,
    "lightgc2n-plus-wo-trends": _without_trends,
}


def build_plus(name: str, config: PlusConfig, train: Training) -> LightGC2NPlus:
    """The model or one of its ablations; items start as popular as they are in training."""
    if config.reach > config.newest:
        raise SettingError(
            f"reach {config.reach}: at most newest ({config.newest}), whose followers alone are asked for."
        )
    popularity = torch.from_numpy(np.asarray(train.popularity, dtype=np.float32))
    favoured = popularity.log1p() - popularity.mean().log1p()
    longest = int(np.diff(train.offsets).max(initial=0))
    tables = {"favoured": favoured, **count_followers(train, config.followers, config.reach)}
    tables |= {f"trends.{part}": table for part, table in (count_trends(train, config.trending) or {}).items()}
    model = LightGC2NPlus(config, favoured, longest, PLUS_VARIANTS[name](config, tables))
    model.learned.copy_(popularity > 0)
    return model


def restore_plus(name: str, config: PlusConfig, tensors: Tables) -> LightGC2NPlus:
    """The model that these tensors were saved from."""
    items = len(tensors["bias"])
    empty = {"columns": torch.zeros(items, 1, dtype=torch.int32), "counts": torch.zeros(items, 1)}
    tables = {**empty, "leaving": torch.zeros(items), "favoured": torch.zeros(items)}
    tables |= {key.removeprefix("followers."): table for key, table in tensors.items() if key.startswith("followers.")}
    tables |= {key: table for key, table in tensors.items() if key.startswith("trends.")}
    model = LightGC2NPlus(config, tensors["bias"], 0, PLUS_VARIANTS[name](config, tables))
    model.load_state_dict(dict(tensors))
    return model
