"""Example accounts of a comparison: the newest events, the next item, and the first items of each model's list.

Examples contain histories, so they are shown and never written to the folder of a comparison.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lightgc2n.data.dataset import Dataset
from lightgc2n.data.splits import Queries
from lightgc2n.experiments.comparison_tables import ranked_models
from lightgc2n.experiments.rank_model import EXAMPLE_PLACES
from lightgc2n.experiments.table import Cell, Table
from lightgc2n.metrics.ranking import Floats

SEED = 0  # not an option: nobody can pick accounts on which a model does well
NOTE = (
    "Examples: accounts drawn at random with a fixed seed, not by success. "
    "next: the item that the account had next, and its rank for each model."
)
Lists = Mapping[str, Sequence[int]]  # the first items of a model's list, by the row of the test query


def example_rows(test: Queries, count: int) -> tuple[int, ...]:
    """The first test query of each of `count` random accounts; a larger count adds accounts to a smaller one."""
    accounts, first = np.unique(test.owner, return_index=True)
    drawn = np.random.default_rng(SEED).permutation(len(accounts))[:count]
    return tuple(first[drawn].tolist())


def examples_of(
    dataset: Dataset, test: Queries, rows: Sequence[int], ranks: Mapping[str, Floats], lists: Mapping[str, Lists]
) -> tuple[dict[str, Any], ...]:
    """Each example as JSON values: its account, the newest events first, the next item, and the list of each model."""
    titles = dataset.titles

    def named(item: int) -> dict[str, str]:
        name = dataset.items[item]
        return {"item": name} | ({"title": titles[name]} if name in titles else {})

    def of_model(name: str, row: int) -> dict[str, Any]:
        rank = float(ranks[name][row])
        return {"rank": rank if math.isfinite(rank) else None, "items": [named(one) for one in lists[name][str(row)]]}

    return tuple(
        {
            "account": dataset.accounts[int(test.owner[row])],
            "events": int(test.stop[row] - test.start[row]),
            "history": [
                named(item) for item in test.events[test.start[row] : test.stop[row]][: -EXAMPLE_PLACES - 1 : -1]
            ],
            "next": named(test.target[row]),
            "lists": {name: of_model(name, row) for name in ranks},
        }
        for row in rows
    )


def example_tables(result: dict[str, Any], examples: Sequence[dict[str, Any]]) -> Iterator[Table]:
    """A table for each example: the best model, and the best of the other kind, simple or trained, beside it."""
    shown = _best_of_each_kind(result)
    for number, example in enumerate(examples, start=1):
        columns = [example["history"], *(example["lists"][name]["items"] for name in shown)]
        places = [
            (Cell(str(place + 1)), *(Cell(_name(items[place]) if place < len(items) else "") for items in columns))
            for place in range(max(map(len, columns)))
        ]
        ranks = (Cell(_rank(example["lists"][name]["rank"])) for name in shown)
        yield Table(
            f"example-{number}",
            f"account {example['account']}, {example['events']:,} events",
            ("", "history, newest first", *shown),
            (*places, (Cell("next"), Cell(_name(example["next"])), *ranks)),
            notes=(NOTE,) if number == len(examples) else (),
            rules=(len(places) - 1,),
            text_columns=2 + len(shown),
        )


def _best_of_each_kind(result: dict[str, Any]) -> list[str]:
    models = ranked_models(result)
    best = next(iter(models))
    other = next((name for name, facts in models.items() if ("epochs" in facts) != ("epochs" in models[best])), None)
    return [best] if other is None else [best, other]


def _name(item: Mapping[str, str]) -> str:
    return item.get("title", item["item"])


def _rank(rank: float | None) -> str:
    return "missed" if rank is None else "rank " + f"{rank:,.1f}".removesuffix(".0")
