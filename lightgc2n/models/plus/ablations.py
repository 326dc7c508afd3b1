"""LightGC²N-plus and its ablations: the same model, each ablation with one part replaced."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lightgc2n.data.splits import Training
from lightgc2n.errors import SettingError
from lightgc2n.models.plus.blend import Blend, NoBlend
from lightgc2n.models.plus.plus import LightGC2NPlus, Parts, PlusConfig
from lightgc2n.models.plus.repeats import NoRepeatMemory, RepeatMemory
from lightgc2n.models.plus.same_person import NewestEventState, OnePerson, PersonState, SamePerson
from lightgc2n.models.plus.transitions import (
    NoTransitions,
    PairCounts,
    Transitions,
    count_neighbours,
    count_transitions,
)
from lightgc2n.models.plus.trends import NoTrends, Trends, count_trends

Tables = Mapping[str, Tensor]
Make = Callable[[PlusConfig, Tables], Parts]


def _full(config: PlusConfig, tables: Tables) -> Parts:
    trends = _trends(tables)
    return Parts(
        SamePerson(config.views, config.latent_users, config.width),
        PersonState(config.width, config.views, config.max_length, config.dropout),
        Transitions(tables["columns"], tables["counts"], tables["leaving"], config.newest, config.reach),
        RepeatMemory(len(tables["leaving"]), config.hidden),
        trends,
        _blend(tables, trends),
    )


def _blend(tables: Tables, trends: Trends | NoTrends) -> Blend:
    neighbours = PairCounts(*(tables[f"blend.{name}"] for name in ("columns", "counts", "total")))
    return Blend(neighbours, trends.half_lives)


def _trends(tables: Tables) -> Trends | NoTrends:
    """Trends, where the training events have times."""
    if "trends.looked" not in tables:
        return NoTrends()
    looked, columns, rates = (tables[f"trends.{name}"] for name in ("looked", "columns", "rates"))
    return Trends(looked, columns, rates, mass=float(tables["log_popularity"].exp().sum()))


def _without_people(config: PlusConfig, tables: Tables) -> Parts:
    return replace(_full(config, tables), same_person=OnePerson(config.views))


def _without_state(config: PlusConfig, tables: Tables) -> Parts:
    return replace(_full(config, tables), state=NewestEventState(config.width))


def _without_transitions(config: PlusConfig, tables: Tables) -> Parts:
    return replace(_full(config, tables), followers=NoTransitions(len(tables["leaving"])))


def _without_memory(config: PlusConfig, tables: Tables) -> Parts:
    return replace(_full(config, tables), memory=NoRepeatMemory())


def _without_trends(config: PlusConfig, tables: Tables) -> Parts:
    trends = NoTrends()
    return replace(_full(config, tables), trends=trends, blend=_blend(tables, trends))


def _without_blend(config: PlusConfig, tables: Tables) -> Parts:
    return replace(_full(config, tables), blend=NoBlend())


PLUS_VARIANTS: dict[str, Make] = {
    "lightgc2n-plus": _full,
    "lightgc2n-plus-wo-people": _without_people,
    "lightgc2n-plus-wo-state": _without_state,
    "lightgc2n-plus-wo-steps": _without_transitions,
    "lightgc2n-plus-wo-memory": _without_memory,
    "lightgc2n-plus-wo-trends": _without_trends,
    "lightgc2n-plus-wo-blend": _without_blend,
}


def build_plus(name: str, config: PlusConfig, train: Training) -> LightGC2NPlus:
    """Build the model or one of its ablations; the item biases start at the log popularity."""
    if config.reach > config.newest:
        raise SettingError(
            f"reach {config.reach}: at most newest ({config.newest}), the number of events whose followers are used."
        )
    popularity = torch.from_numpy(np.asarray(train.popularity, dtype=np.float32))
    log_popularity = popularity.log1p() - popularity.mean().log1p()
    longest = int(np.diff(train.offsets).max(initial=0))
    tables = {"log_popularity": log_popularity, **count_transitions(train, config.followers, config.reach)}
    tables |= {f"trends.{part}": table for part, table in (count_trends(train, config.trending) or {}).items()}
    neighbours = count_neighbours(train)
    tables |= {f"blend.{part}": getattr(neighbours, part) for part in ("columns", "counts", "total")}
    model = LightGC2NPlus(config, log_popularity, longest, PLUS_VARIANTS[name](config, tables))
    model.learned.copy_(popularity > 0)
    return model


def restore_plus(name: str, config: PlusConfig, tensors: Tables) -> LightGC2NPlus:
    """Rebuild the model from its saved tensors; those of earlier versions have no blend."""
    items = len(tensors["bias"])
    empty = {"columns": torch.zeros(items, 1, dtype=torch.int32), "counts": torch.zeros(items, 1)}
    tables = {**empty, "leaving": torch.zeros(items), "log_popularity": torch.zeros(items)}
    tables |= {f"blend.{key}": table for key, table in empty.items()} | {"blend.total": torch.zeros(items)}
    tables |= {key.removeprefix("followers."): table for key, table in tensors.items() if key.startswith("followers.")}
    tables |= {key: table for key, table in tensors.items() if key.startswith(("trends.", "blend."))}
    model = LightGC2NPlus(config, tensors["bias"], 0, PLUS_VARIANTS[name](config, tables))
    model.load_state_dict(dict(tensors))
    return model
