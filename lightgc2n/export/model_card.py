"""The model card of a bundle (README.md), with the best simple baseline of the comparison that its run belongs to."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightgc2n import zoo

RESULTS = "results.json"  # the file of a comparison, two folders above its runs: OUT/results.json, OUT/runs/MODEL
RUNS = "runs"
DECISIVE = "MRR@20"
NO_BASELINE = "No simple baseline was measured beside it: export a run of `lightgc2n compare` to have one here."
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
    "finder stores for each item a vector, a group of similar items, its number of events, and the days of its first "
    "event and on average: for an item of only one account these are the days of that account. It also stores at "
    "which hours types of people come: with few accounts a type may be one person.",
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
    lines = [
        f"Of {metrics['targets']:,} test targets, ranked among all items (of their domain, where each domain has its "
        "own targets), seen ones included:",
        "",
    ]
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


def best_simple_baseline(run: Path, checksum: str, targets: int, metrics: list[str]) -> dict[str, Any] | None:
    """The simple baseline with the highest MRR@20 in the test, and its metrics; None if there is no such comparison.

    Args:
        checksum: of the dataset; a comparison on other data is ignored.
        targets: the number of test targets; a comparison with another number is ignored.
        metrics: names of the metrics to return.
    """
    folder = run.resolve().parent
    result = _comparison(folder.parent / RESULTS) if folder.name == RUNS else None
    if result is None or result["dataset"]["checksum"] != checksum or result["counts"]["test_queries"] != targets:
        return None
    simple = {name: facts["metrics"]["all"] for name, facts in result["models"].items() if _is_simple(name)}
    simple = {name: values for name, values in simple.items() if {DECISIVE, *metrics} <= values.keys()}
    if result["exclude_seen"] or not simple:
        return None
    best = max(simple, key=lambda name: simple[name][DECISIVE]["value"])
    return {"name": best, "values": {metric: simple[best][metric]["value"] for metric in metrics}}


def _is_simple(name: str) -> bool:
    return name in zoo.ZOO and zoo.ZOO[name].is_simple


def _comparison(path: Path) -> Mapping[str, Any] | None:
    """The content of a comparison's results; None if there are none, or not of this version."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    needed = {"dataset", "counts", "models", "exclude_seen"}
    return result if isinstance(result, dict) and needed <= result.keys() else None
