"""Exports a trained run to a bundle: weights, an ONNX graph, the server part, and the model card (README.md)."""

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
from lightgc2n.data.dataset import stored_checksum, write_ids
from lightgc2n.data.splits import Split
from lightgc2n.errors import DataError, SettingError
from lightgc2n.export.account_tables import write_people, write_server
from lightgc2n.export.beside import best_simple_baseline
from lightgc2n.export.lightgc2n_graph import write_lightgc2n
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
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.progress import say
from lightgc2n.recommending.bundle_files import (
    BUNDLE,
    CARD,
    CATALOGUE,
    CONFIG,
    FORMAT,
    GRAPH,
    ITEMS,
    SCHEMA,
    TITLES,
    WEIGHTS,
    write_manifest,
)
from lightgc2n.recommending.bundle_parts import POPULARITY
from lightgc2n.recommending.load_run import TorchScorer, load_with_split
from lightgc2n.recommending.population import population_of
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.training.runs import RunPlan, plan_of, versions
from lightgc2n.zoo import ZOO

CUTOFFS = (5, 20)


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
            people = population_of(recommender) if finder is not None and options.histories else None
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


LIMITS = (
    "A score orders one list. It is not a probability, and scores of two lists cannot be compared.",
    "Items without training events come last in every list: the model cannot rank them.",
    "Without a history the list has the most popular items and is marked as a fallback.",
    "Metrics were measured on the log that the model was trained on; other audiences may differ.",
    "Counts in the device part (popularity, transitions) are sums over all accounts, but include pairs of items that "
    "only one account had in that order.",
)
BLEND_LIMITS = (
    "Scores join what was learned with counts over all accounts: what follows what, which items are within ten events "
    "of each other, and what was frequent lately. This includes pairs of items that only one account had that close. "
    "No event after the data of the run is counted.",
)
LATENT_USER_LIMITS = ("Every account has the same number of latent users. They are part of the model, not people.",)
INT8_LIMITS = (
    "Item tables are quantized to int8 with a scale for each row, and the vectors of the people finder to 4 bits. The "
    "metrics above were measured before quantization; items with close scores may change places, and so may counts "
    "of people with close probabilities.",
)
PEOPLE_LIMITS = (
    "The number of people behind a history is an estimate with a probability; who they are is unknown. The people "
    "finder stores for each item a vector, its number of events, and the days of its first event and on average: for "
    "an item of only one account these are the days of that account.",
)
ACCOUNT_LIMITS = (
    "`server/` contains the histories of accounts. Protect it like the log itself, and do not send it to clients. "
    "`lightgc2n forget ACCOUNT --bundle BUNDLE` removes an account.",
)


def model_card(config: Mapping[str, Any], sizes: Mapping[str, int], with_accounts: bool) -> str:
    """The text of README.md.

    Args:
        sizes: of the files that are already there, in bytes.
    """
    limits = [
        *LIMITS,
        *(LATENT_USER_LIMITS if config["latent_users"] else ()),
        *(INT8_LIMITS if config["int8"] else ()),
    ]
    limits += BLEND_LIMITS if config.get("blend") else ()
    limits += PEOPLE_LIMITS if config["people"] else ()
    limits += ACCOUNT_LIMITS if with_accounts else ()
    parts = {
        "Data": [*_listed(config["data"], ("name", "domain", "accounts", "events", "checksum")), _items(config)],
        "Protocol": _listed(config["split"]),
        "Metrics": _metrics(config["metrics"]),
        "Settings": _listed(config["settings"]),
        "Limits": [f"- {limit}" for limit in limits],
        "Files": [f"- {name}: {size:,} bytes" for name, size in sizes.items()],
        "Versions": _listed({"made by": config["made_by"], "schema": config["schema"], **config["versions"]}),
    }
    text = [f"# {config['model']} on {config['data']['name']}", "", _summary(config)]
    for heading, lines in parts.items():
        text += ["", f"## {heading}", "", *lines]
    return "\n".join(text) + "\n"


def _summary(config: Mapping[str, Any]) -> str:
    kind = "bytes (int8)" if config["int8"] else "32-bit floats"
    return (
        f"A bundle of lightgc2n: it recommends the next items for a history. Weights are {kind}. "
        f"Use it with `lightgc2n recommend`, `lightgc2n.load`, or any runtime for ONNX."
    )


def _items(config: Mapping[str, Any]) -> str:
    names = ", ".join(f"{one['name']} ({one['stop'] - one['start']:,})" for one in config["data"]["domains"])
    return f"- items: {config['items']:,}; by domain: {names}"


def _listed(facts: Mapping[str, Any], names: tuple[str, ...] | None = None) -> list[str]:
    values = {name: facts.get(name) for name in names or facts}
    return [f"- {name}: {_shown(value)}" for name, value in values.items() if value not in (None, "")]


def _shown(value: Any) -> str:
    return f"{value:,}" if type(value) is int else str(value)


def _metrics(metrics: Mapping[str, Any]) -> list[str]:
    if not metrics:
        return ["Not measured: the counts of this refreshed run include all events, so no test target was left."]
    lines = [f"Of {metrics['targets']:,} test targets, ranked among all items of their domain, seen ones included:", ""]
    baseline = metrics.get("baseline")
    if baseline is None:
        lines += ["| metric | % |", "|---|---|"]
        lines += [f"| {name} | {100 * value:.2f} |" for name, value in metrics["values"].items()]
        return [*lines, "", NO_BASELINE]
    lines += [f"| metric | this model % | {baseline['name']} % |", "|---|---|---|"]
    lines += [
        f"| {name} | {100 * value:.2f} | {100 * baseline['values'][name]:.2f} |"
        for name, value in metrics["values"].items()
    ]
    return [*lines, "", f"{baseline['name']} is the best simple baseline of the comparison that the run belongs to."]


NO_BASELINE = "No simple baseline was measured beside it: export a run of `lightgc2n compare` to have one here."

WRITERS: dict[type, Callable[..., ModelOutputs]] = {
    LightGC2N: write_lightgc2n,
    LightGC2NPlus: write_plus,
    SASRec: write_sasrec,
    **dict.fromkeys(SIMPLE_GRAPHS, write_simple),
}
