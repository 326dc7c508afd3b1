"""A trained run becomes a bundle: what is learned is stored once, what is left to compute is a graph."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from safetensors.numpy import save

from lightgc2n import __version__
from lightgc2n.baselines.sasrec import SASRec
from lightgc2n.data.dataset import stored_checksum
from lightgc2n.data.splits import Split
from lightgc2n.errors import DataError, SettingError
from lightgc2n.export.account_tables import write_server
from lightgc2n.export.export_options import ExportOptions as ExportOptions
from lightgc2n.export.graph_interface import HISTORY, Answer, finish
from lightgc2n.export.lightgc2n_graph import write_lightgc2n
from lightgc2n.export.model_card import model_card
from lightgc2n.export.onnx_builder import INT64, OPSET, Array, Graph
from lightgc2n.export.onnx_tables import Tables
from lightgc2n.export.people_tables import write_people
from lightgc2n.export.plus_graph import write_plus
from lightgc2n.export.sasrec_graph import write_sasrec
from lightgc2n.files.atomic_writes import new_folder, refuse_existing
from lightgc2n.metrics.ranking import gains
from lightgc2n.metrics.ranks import ranks_in_domains
from lightgc2n.models.lightgc2n.lightgc2n import LightGC2N
from lightgc2n.models.plus.plus import LightGC2NPlus
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.progress import say
from lightgc2n.recommending.bundle_files import (
    BUNDLE,
    CARD,
    CONFIG,
    FORMAT,
    GRAPH,
    ITEMS,
    SCHEMA,
    TITLES,
    WEIGHTS,
    write_facts,
)
from lightgc2n.recommending.bundle_tables import POPULARITY
from lightgc2n.recommending.recommender import Recommender, load_with_split
from lightgc2n.recommending.titles import read_titles
from lightgc2n.training.runs import RunPlan, plan_of, versions

WRITERS: dict[type, Callable[..., Answer]] = {
    LightGC2N: write_lightgc2n,
    LightGC2NPlus: write_plus,
    SASRec: write_sasrec,
}
CUTOFFS = (5, 20)


def export_run(
    run: Path, out: Path, options: ExportOptions, data: Path | None = None, force: bool = False
) -> dict[str, Any]:
    """Writes the bundle of a run to `out` and returns its config; it appears whole or not at all."""
    refuse_existing(out, force)
    plan = plan_of(run) if data is None else replace(plan_of(run), data=data)
    recommender, split = load_with_split(run, data)
    return write_bundle(recommender, split, plan, out, options, force)


def write_bundle(
    recommender: Recommender, split: Split, plan: RunPlan, out: Path, options: ExportOptions, force: bool = False
) -> dict[str, Any]:
    """Writes the bundle of a recommender whose run has this plan."""
    _refuse_unfit(recommender)
    titles = _titles(options.titles, recommender) if options.titles else None
    graph, answer = write_graph(recommender, options.int8)
    finder = _finder(recommender) if options.people else None
    config = _config(recommender, split, plan, options, answer) | {"people": finder is not None}
    if isinstance(recommender.model, LightGC2NPlus) and recommender.model.blend.is_fitted:
        config["blend"] = True
    with new_folder(out, force, kind=BUNDLE) as new:
        _write_ids(new / ITEMS, recommender.dataset.items)
        if titles is not None:
            _write_ids(new / TITLES, (f"{item}\t{title}" for item, title in titles.items()))
        write_weights(new, graph, {POPULARITY: _smallest(recommender._popularity.cpu().numpy())})
        if finder is not None:
            write_people(new, finder, options.int8)
        sizes = {path.name: path.stat().st_size for path in sorted(new.rglob("*")) if path.is_file()}
        with_accounts = options.histories or config["account_width"] > 0
        (new / CARD).write_text(model_card(config, sizes, with_accounts), encoding="utf-8")
        write_facts(new, CONFIG, config)
        if with_accounts:
            write_server(new, recommender, options, finder)
        _refuse_changed_data(plan, recommender)
    return config


def _refuse_changed_data(plan: RunPlan, recommender: Recommender) -> None:
    """Raise an error when the dataset was replaced since it was read: an account may have been forgotten there."""
    if recommender.dataset.checksum != stored_checksum(plan.data):
        raise DataError(
            f"{plan.data} was changed while the run was exported. Forget in the run too, then export again."
        )


def write_graph(recommender: Recommender, int8: bool) -> tuple[Graph, Answer]:
    """The graph of a model."""
    graph = Graph()
    history = graph.input(HISTORY, INT64, ["B", "T"])
    answer = WRITERS[type(recommender.model)](graph, Tables(graph, int8), recommender.model, history)
    finish(graph, len(recommender.dataset.items), answer)
    return graph, answer


def write_weights(folder: Path, graph: Graph, more: Mapping[str, Array]) -> None:
    """Writes weights.safetensors, and model.onnx with the places of its weights in that file."""
    path = folder / WEIGHTS
    path.write_bytes(save({**graph.weights, **more}))  # written like the other files, and readable like them
    onnx.save(graph.model(WEIGHTS, _places(path)), folder / GRAPH)


def _places(path: Path) -> dict[str, tuple[int, int]]:
    """Where each tensor of a safetensors file stands: its first byte, and how many there are."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    ends = {name: facts["data_offsets"] for name, facts in header.items() if name != "__metadata__"}
    return {name: (8 + length + first, stop - first) for name, (first, stop) in ends.items()}


def _refuse_unfit(recommender: Recommender) -> None:
    if type(recommender.model) not in WRITERS:
        raise SettingError(
            f"{recommender.name} cannot be exported: lightgc2n, lightgc2n-plus, their ablations and sasrec can."
        )
    for name, tensor in recommender.model.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise DataError(f"{recommender.name}: {name} is not finite. Train with a lower learning rate.")


def _finder(recommender: Recommender) -> PeopleFinder | None:
    """What finds people, learned now if the run has not kept it; none where there are no whole logs."""
    if recommender.dataset.kind != "logs":
        say(f"{recommender.dataset.name} holds {recommender.dataset.kind}, so the bundle will not find people.")
        return None
    return recommender._finder


def _config(
    recommender: Recommender, split: Split, plan: RunPlan, options: ExportOptions, answer: Answer
) -> dict[str, Any]:
    dataset, model = recommender.dataset, recommender.model
    latent = model.config.latent_users if answer.users is not None else 0
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "made_by": f"lightgc2n {__version__}",
        "model": recommender.name,
        "settings": asdict(model.config),
        "int8": options.int8,
        "items": len(dataset.items),
        "latent_users": latent,
        "item_table": answer.table,
        "account_width": model.config.embedding_width if isinstance(model, LightGC2N) else 0,
        "data": {
            "name": dataset.name,
            "domain": plan.domain,
            "checksum": dataset.checksum,
            "accounts": len(dataset.accounts),
            "events": len(dataset.events),
            "domains": [asdict(domain) for domain in dataset.domains],
        },
        "split": asdict(plan.split),
        "metrics": _measured(recommender, split),
        "versions": {**versions(), "onnx": onnx.__version__, "opset": OPSET},
    }


def _measured(recommender: Recommender, split: Split) -> dict[str, Any]:
    """The test of the model as it is exported, with the counts that it is exported with."""
    learned = recommender._learned_items.cpu().numpy()
    model = recommender.model
    ranks = ranks_in_domains(recommender.name, model, split.test, split.catalogues, learned=learned)
    values = {name: float(column.mean()) for name, column in gains(ranks, CUTOFFS).items()}
    return {"targets": len(ranks), "values": values}


def _titles(path: Path, recommender: Recommender) -> dict[str, str]:
    """The titles of items that the catalogue has."""
    known = recommender.dataset.item_index
    titles = {item: title for item, title in read_titles(path).items() if item in known}
    if not titles:
        raise DataError(f"{path}: has a title for none of the {len(known):,} items.")
    return titles


def _smallest(counts: Array) -> Array:
    """The same counts with as few bytes as they need."""
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))


def _write_ids(path: Path, ids: Any) -> None:
    path.write_bytes("".join(f"{one}\n" for one in ids).encode("utf-8"))
