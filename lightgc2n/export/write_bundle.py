"""Exports a trained run to a bundle: weights, an ONNX graph, the people finder, the server part, and the model card.

Int8 bundles store the vectors of the finder with four bits a number, and days as float32, which is exact to minutes.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from safetensors.numpy import save

from lightgc2n import __version__
from lightgc2n.baselines.neighbours import ItemKnn
from lightgc2n.baselines.sasrec import SASRec
from lightgc2n.baselines.simple import SimpleBaseline
from lightgc2n.data.catalogue import Catalogue, CatalogueEntry, format_catalogue, read_titles
from lightgc2n.data.dataset import Ints, Longs, stored_checksum, write_ids
from lightgc2n.data.splits import Split
from lightgc2n.errors import DataError, SettingError
from lightgc2n.export.lightgc2n_graph import account_vectors, write_lightgc2n
from lightgc2n.export.model_card import best_simple_baseline, model_card
from lightgc2n.export.onnx_builder import HISTORY, INT64, OPSET, Array, Graph, ModelOutputs, Tables, add_outputs
from lightgc2n.export.plus_graph import write_plus
from lightgc2n.export.sasrec_graph import write_sasrec
from lightgc2n.export.simple_graph import SCORES as SIMPLE_GRAPHS
from lightgc2n.export.simple_graph import write_simple
from lightgc2n.files.atomic_writes import new_folder, refuse_existing
from lightgc2n.metrics.ranking import gains
from lightgc2n.metrics.ranks import ranks_in_domains
from lightgc2n.models.contract import Model
from lightgc2n.models.lightgc2n.lightgc2n import LightGC2N
from lightgc2n.models.plus.plus import LightGC2NPlus
from lightgc2n.people.finder import PeopleFinder, arrays_of, numbers_of
from lightgc2n.progress import say
from lightgc2n.recommending.bundle_files import (
    ACCOUNT_TABLES,
    ACCOUNTS,
    BUNDLE,
    CARD,
    CATALOGUE,
    CONFIG,
    FINDER,
    FINDER_FACTS,
    FORMAT,
    GRAPH,
    HISTORIES,
    ITEMS,
    PEOPLE,
    SCHEMA,
    SERVER,
    SERVER_FACTS,
    TITLES,
    WEIGHTS,
    device_checksum,
    write_manifest,
)
from lightgc2n.recommending.bundle_files import VECTORS as ACCOUNT_VECTORS
from lightgc2n.recommending.bundle_parts import POPULARITY
from lightgc2n.recommending.load_bundle import DAYS, EVENTS, FOLD, NIBBLE_MIDDLE, TABLES, VECTORS, finder_constants
from lightgc2n.recommending.load_run import TorchScorer, load_with_split
from lightgc2n.recommending.people_report import Population, accounts_with_events, population_of
from lightgc2n.recommending.queries import Histories
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.training.runs import RunPlan, plan_of, versions
from lightgc2n.zoo import ZOO

CUTOFFS = (5, 20)
STRANGERS = 1  # item tables that a history outside the training data needs: the first


@dataclass(frozen=True)
class ExportOptions:
    """The options of an export."""

    int8: bool = False
    histories: bool = True
    people: bool = True
    titles: Path | Mapping[str, str] | None = None  # a file, or titles by item id, in place of the dataset's


def export_run(
    run: Path, out: Path, options: ExportOptions, data: Path | None = None, force: bool = False
) -> dict[str, Any]:
    """Export a run to `out` and return the bundle's config; the folder is written atomically."""
    refuse_existing(out, force)
    plan = plan_of(run) if data is None else replace(plan_of(run), data=data)
    recommender, split = load_with_split(run, data)
    return write_bundle(recommender, split, plan, out, options, force, run)


def write_bundle(
    recommender: Recommender,
    split: Split | None,
    plan: RunPlan,
    out: Path,
    options: ExportOptions,
    force: bool = False,
    run: Path | None = None,
) -> dict[str, Any]:
    """Write the bundle of a recommender whose run has this plan; without a split it is not measured.

    Args:
        run: the run's folder; if it belongs to a comparison, the card has the best simple baseline beside the model.
    """
    model = _exportable_model(recommender)
    catalogue = _catalogue(options.titles, recommender)
    graph, answer = write_graph(model, len(recommender.dataset.items), options.int8)
    finder = _finder(recommender) if options.people else None
    config = _config(recommender, model, split, plan, options, answer) | {"people": finder is not None}
    measured = config["metrics"]
    if (
        run is not None
        and measured
        and (
            baseline := best_simple_baseline(
                run, config["data"]["checksum"], measured["targets"], list(measured["values"])
            )
        )
    ):
        measured["baseline"] = baseline
    if isinstance(model, LightGC2NPlus) and model.blend.is_fitted:
        config["blend"] = True
    if isinstance(model, ItemKnn):
        config["pairs_per_event"] = model.config.neighbours
    with new_folder(out, force, kind=BUNDLE) as new:
        write_ids(new / ITEMS, recommender.dataset.items)
        write_catalogue(new, catalogue)
        write_weights(new, graph, {POPULARITY: _smallest(recommender.scorer.popularity)})
        if finder is not None:
            write_people(new, finder, options.int8)
        sizes = {path.name: path.stat().st_size for path in sorted(new.rglob("*")) if path.is_file()}
        with_accounts = options.histories or config["account_width"] > 0
        (new / CARD).write_text(model_card(config, sizes, with_accounts), encoding="utf-8")
        write_manifest(new, CONFIG, config)
        if with_accounts:
            people = None
            if finder is not None and options.histories:
                people = population_of(accounts_with_events(recommender.dataset), recommender.people_of_all)
            write_server(new, recommender.source.histories, options.histories, model, finder, options.int8, people)
        _refuse_changed_data(plan, recommender)
    return config


def _refuse_changed_data(plan: RunPlan, recommender: Recommender) -> None:
    """Raise an error when the dataset was replaced since it was read: an account may have been forgotten there."""
    if recommender.dataset.checksum != stored_checksum(plan.data):
        raise DataError(
            f"{plan.data} was changed while the run was exported. Forget in the run too, then export again."
        )


def write_graph(model: Model, items: int, int8: bool) -> tuple[Graph, ModelOutputs]:
    """The graph of a model."""
    graph = Graph()
    history = graph.input(HISTORY, INT64, ["B", "T"])
    answer = WRITERS[type(model)](graph, Tables(graph, int8), model, history)
    add_outputs(graph, items, answer)
    return graph, answer


def write_weights(folder: Path, graph: Graph, more: Mapping[str, Array]) -> None:
    """Write weights.safetensors, and model.onnx, which refers to it."""
    path = folder / WEIGHTS
    path.write_bytes(
        save({**graph.weights, **more})
    )  # save() and not save_file(): the file mode is that of the other files
    onnx.save(graph.model(WEIGHTS, _places(path)), folder / GRAPH)


def _places(path: Path) -> dict[str, tuple[int, int]]:
    """The offset and length in bytes of each tensor of a safetensors file."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    ends = {name: facts["data_offsets"] for name, facts in header.items() if name != "__metadata__"}
    return {name: (8 + length + first, stop - first) for name, (first, stop) in ends.items()}


def _exportable_model(recommender: Recommender) -> Model:
    """The recommender's model; raise an error if it cannot be exported or holds numbers that are not finite."""
    assert isinstance(recommender.scorer, TorchScorer), "a bundle is written from a run"
    model = recommender.scorer.model
    if type(model) not in WRITERS:
        kind = "it holds the logs of accounts" if isinstance(model, SimpleBaseline) else "it has no graph for bundles"
        able = ", ".join(name for name, entry in ZOO.items() if entry.exports and "-wo-" not in name)
        raise SettingError(f"{recommender.name} cannot be exported: {kind}. These can: {able}.")
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise DataError(f"{recommender.name}: {name} is not finite. Train with a lower learning rate.")
    return model


def _finder(recommender: Recommender) -> PeopleFinder | None:
    """The people finder, learned now if the run has none; None for a dataset without whole logs."""
    if recommender.dataset.kind != "logs":
        say(f"{recommender.dataset.name} holds {recommender.dataset.kind}, so the bundle will not find people.")
        return None
    return recommender.finder


def _config(
    recommender: Recommender,
    model: Any,
    split: Split | None,
    plan: RunPlan,
    options: ExportOptions,
    answer: ModelOutputs,
) -> dict[str, Any]:
    dataset = recommender.dataset
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
        "metrics": _measured(recommender, model, split) if split is not None else {},
        "versions": {**versions(), "onnx": onnx.__version__, "opset": OPSET},
    }


def _measured(recommender: Recommender, model: Model, split: Split) -> dict[str, Any]:
    """The test metrics of the model that is exported, with the counts that it is exported with."""
    learned = recommender.scorer.learned_items
    ranks = ranks_in_domains(recommender.name, model, split.test, split.catalogues, learned=learned)
    values = {name: float(column.mean()) for name, column in gains(ranks, CUTOFFS).items()}
    return {"targets": len(ranks), "values": values}


def _catalogue(given: Path | Mapping[str, str] | None, recommender: Recommender) -> dict[str, CatalogueEntry]:
    """What the dataset knows of the items that the model has; titles that are given replace its own."""
    items = recommender.dataset.item_index
    known = {item: entry for item, entry in recommender.catalogue.items() if item in items}
    if not given:
        return known
    titles = read_titles(given) if isinstance(given, Path) else given
    chosen = {item: replace(known.get(item, CatalogueEntry()), title=titles[item]) for item in titles if item in items}
    if not chosen:
        where = given if isinstance(given, Path) else "titles"
        raise DataError(f"{where}: has a title for none of the {len(items):,} items.")
    return known | chosen


def write_catalogue(folder: Path, catalogue: Catalogue) -> None:
    """Write titles, which clients read line by line, and what else is known of items."""
    titles = [f"{item}\t{entry.title}" for item, entry in catalogue.items() if entry.title]
    if titles:
        write_ids(folder / TITLES, titles)
    bare = {item: replace(entry, title="", from_log=False) for item, entry in catalogue.items()}
    described = {item: entry for item, entry in bare.items() if entry != CatalogueEntry()}
    if described:
        (folder / CATALOGUE).write_bytes(format_catalogue(described))


def _smallest(counts: Array) -> Array:
    """The counts in the smallest type."""
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))


WRITERS: dict[type, Callable[..., ModelOutputs]] = {
    LightGC2N: write_lightgc2n,
    LightGC2NPlus: write_plus,
    SASRec: write_sasrec,
    **dict.fromkeys(SIMPLE_GRAPHS, write_simple),
}


def write_people(folder: Path, finder: PeopleFinder, int8: bool) -> None:
    """Write the finder into a device part: what new histories need, and nothing of any account."""
    (folder / PEOPLE).mkdir()
    arrays = arrays_of(finder)
    del arrays[FOLD]
    tables = {name: arrays.pop(name)[:STRANGERS] for name in TABLES if name in arrays}
    (folder / FINDER).write_bytes(save(_contiguous(arrays | _stored(tables, int8))))
    (folder / FINDER_FACTS).write_text(
        json.dumps(numbers_of(finder) | {"constants": finder_constants()}, indent=1) + "\n", encoding="utf-8"
    )


def write_account_tables(server: Path, finder: PeopleFinder, int8: bool) -> None:
    """Write the item tables of the other folds, and the fold of each account, into a server part."""
    arrays = arrays_of(finder)
    tables = {name: arrays[name][STRANGERS:] for name in TABLES if name in arrays}
    fold = arrays[FOLD].astype(np.uint8)
    (server / ACCOUNT_TABLES).write_bytes(save(_contiguous(_stored(tables, int8) | {FOLD: fold})))


def _stored(tables: dict[str, Array], int8: bool) -> dict[str, Array]:
    """The tables in the types of the bundle: counts in the smallest type, and with int8 the rest quantized."""
    events = tables[EVENTS]
    stored = tables | {EVENTS: events.astype(np.min_scalar_type(int(events.max(initial=0))))}
    if not int8:
        return stored
    days = {name: tables[name].astype(np.float32) for name in DAYS if name in tables}
    return stored | days | {VECTORS: in_nibbles(tables[VECTORS])}


def in_nibbles(vectors: Array) -> Array:
    """Pack unit or zero vectors with four bits a number; a byte holds one number of each half.

    The largest number of a vector becomes 7 steps. The step size is not stored, since the length is known.
    """
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    steps = np.round(vectors / np.where(largest > 0, largest, 1) * (NIBBLE_MIDDLE - 1)) + NIBBLE_MIDDLE
    first, second = np.split(steps.astype(np.uint8), 2, axis=-1)
    return first | second << 4


def _contiguous(arrays: dict[str, Array]) -> dict[str, Array]:
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def write_server(
    folder: Path,
    histories: Histories,
    with_histories: bool,
    model: Model,
    finder: PeopleFinder | None,
    int8: bool,
    population: Population | None = None,
) -> None:
    """Write the server part beside a finished device part."""
    server, accounts = folder / SERVER, histories.dataset.accounts
    server.mkdir()
    (server / ACCOUNTS).write_bytes("".join(f"{one}\n" for one in accounts).encode("utf-8"))
    if with_histories:
        (server / HISTORIES).write_bytes(save(_histories(histories, model)))
    if isinstance(model, LightGC2N):
        (server / ACCOUNT_VECTORS).write_bytes(save({"account": account_vectors(model)}))
    if finder is not None:
        write_account_tables(server, finder, int8)
    facts: dict[str, Any] = {"device": device_checksum(folder), "accounts": len(accounts)}
    if population is not None:
        facts["population"] = population.as_json()
    write_manifest(server, SERVER_FACTS, facts)


def _histories(histories: Histories, model: Model) -> dict[str, Array]:
    """The events and times of each account, and its training items besides these."""
    dataset, start, stop = histories.dataset, histories.start, histories.stop
    lines = [np.asarray(dataset.events[first:last]) for first, last in zip(start, stop, strict=True)]
    offsets, events = _concatenated(lines)
    arrays: dict[str, Array] = {"offsets": offsets, "events": events}
    if dataset.times is not None:
        times = [np.asarray(dataset.times[first:last]) for first, last in zip(start, stop, strict=True)]
        arrays["times"] = np.concatenate([*times, np.empty(0, dtype=np.int64)])
    if isinstance(model, LightGC2N):
        graph = model.graph
        held = np.split(graph.held_items.cpu().numpy(), graph.held_offsets.cpu().numpy()[1:-1])
        beyond = [np.setdiff1d(items, line) for items, line in zip(held, lines, strict=True)]
        if any(map(len, beyond)):
            arrays["held_offsets"], arrays["held_items"] = _concatenated(beyond)
    return arrays


def _concatenated(lines: list[Array]) -> tuple[Longs, Ints]:
    """Offsets and the concatenation of all lines."""
    offsets = np.concatenate([[0], np.cumsum([len(line) for line in lines])]).astype(np.int64)
    return offsets, np.concatenate([*lines, np.empty(0, dtype=np.int32)]).astype(np.int32)
