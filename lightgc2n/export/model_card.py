"""The model card: what a bundle was made from, how good it is, and what it is not good for."""

from collections.abc import Mapping
from typing import Any

LIMITS = (
    "A score orders one list and means nothing beyond it: it is no probability.",
    "Items without a training event are never listed before any other: the model cannot tell them apart.",
    "Without any history the most popular items are listed, and the list is marked as a fallback.",
    "Metrics are those of the log that the model was trained on; another audience may differ.",
    "Counts in the device part (how popular an item is, what follows what) are over all accounts together, but a pair "
    "of items that one account alone has had in that order is among them.",
)
OF_BLEND = (
    "Scores join what was learned with counts over all accounts: what follows what, which items are within ten events "
    "of each other, and what was frequent lately. A pair of items that one account alone has had that close is among "
    "them. Nothing is counted that came after the data of the run.",
)
OF_LATENT_USERS = ("Latent users are the model's own and equally many behind every account. They are not yet people.",)
OF_BYTES = (
    "Tables of items are rounded to bytes, a scale for each row, and what finds people to half a byte a number. The "
    "metrics above were measured before that; lists may differ in places whose scores are close, and counts of people "
    "where chances are.",
)
OF_PEOPLE = (
    "How many people are behind a history is a guess, given with its chance; who they are is not known. What finds "
    "them holds for each item a vector, how often it was had, since when, and when on average: of an item that one "
    "account alone has had these days are that account's.",
)
OF_ACCOUNTS = (
    "`server/` holds what accounts did. Keep it where the log itself may be kept, and leave it out of what goes to "
    "phones. `lightgc2n forget ACCOUNT --bundle BUNDLE` takes an account out.",
)


def model_card(config: Mapping[str, Any], sizes: Mapping[str, int], with_accounts: bool) -> str:
    """The text of README.md.

    Args:
        sizes: of the files that are already there, in bytes.
    """
    limits = [*LIMITS, *(OF_LATENT_USERS if config["latent_users"] else ()), *(OF_BYTES if config["int8"] else ())]
    limits += OF_BLEND if config.get("blend") else ()
    limits += OF_PEOPLE if config["people"] else ()
    limits += OF_ACCOUNTS if with_accounts else ()
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
        f"A bundle of lightgc2n: a history goes in, the next items come out. Weights are {kind}. "
        f"Use it with `lightgc2n recommend`, `lightgc2n.load`, or any runtime for ONNX."
    )


def _items(config: Mapping[str, Any]) -> str:
    names = ", ".join(f"{one['name']} ({one['stop'] - one['start']:,})" for one in config["data"]["domains"])
    return f"- items: {config['items']:,}; by domain: {names}"


def _listed(facts: Mapping[str, Any], names: tuple[str, ...] | None = None) -> list[str]:
    found = {name: facts.get(name) for name in names or facts}
    return [f"- {name}: {_shown(value)}" for name, value in found.items() if value not in (None, "")]


def _shown(value: Any) -> str:
    return f"{value:,}" if type(value) is int else str(value)


def _metrics(metrics: Mapping[str, Any]) -> list[str]:
    lines = [f"Of {metrics['targets']:,} test targets, ranked among all items of their domain, seen ones included:", ""]
    lines += ["| metric | % |", "|---|---|"]
    return lines + [f"| {name} | {100 * value:.2f} |" for name, value in metrics["values"].items()]
