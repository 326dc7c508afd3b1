"""The schema of a bundle: JSON fields, safetensors tables, and the inputs and outputs of the graph.

Nothing else is read. A length that is given as a name is the same wherever the name occurs.
"""

from typing import Any

from lightgc2n.errors import DataError
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.count_people import FEATURES, OF_EVIDENCE
from lightgc2n.recommending.histories import EARLIEST, LATEST
from lightgc2n.recommending.schema_checks import (
    BYTES,
    COUNTS,
    EXPORT_AGAIN,
    FLOATS,
    Fields,
    Flag,
    ListOf,
    Number,
    OrNull,
    Shown,
    Table,
    Text,
    Whole,
    need,
)

MOST_ITEMS, MOST_EVENTS = 2**31 - 1, 2**53
INFINITE = float("inf")
ITEM_COUNT = Whole(1, MOST_ITEMS)

DOMAIN = Fields({"name": Text(shortest=0), "start": Whole(0, MOST_ITEMS), "stop": ITEM_COUNT}, {})
CONFIG_FIELDS = Fields(
    {
        "model": Text(),
        "items": ITEM_COUNT,
        "latent_users": Whole(0, 10_000),
        "item_table": Text(shortest=0),
        "account_width": Whole(0, 2**20),
        "data": Fields({"name": Text(shortest=0), "domains": ListOf(DOMAIN, at_least=1)}, {}),
    },
    {
        **{"settings": Shown(), "metrics": Shown(), "split": Shown(), "versions": Shown()},
        **{"int8": Flag(), "people": Flag(), "blend": Flag(), "pairs_per_event": Whole(1, 2**20)},
    },
)
SERVER_FIELDS = Fields({"device": Text(64, 64), "accounts": Whole(0, MOST_ITEMS)}, {})
FINDER_CONSTANTS = Fields(  # with which the page finds people; bundles of earlier versions do not have them
    {},
    {
        **dict.fromkeys(("analysed_sessions", "most_sessions"), Whole(1, 10_000)),
        **dict.fromkeys(("centre_steps", "steps"), Whole(1, 1000)),
        **dict.fromkeys(("doubt", "least_ratio", "same_person_share"), Number(1e-6, 1)),
        **dict.fromkeys(("farthest_count", "farthest_pair", "fit_weight", "half_an_hour"), Number(1e-6, 1000)),
        "most_people": Whole(MOST_PEOPLE, MOST_PEOPLE),
        "pair_shares": ListOf(Number(1e-6, 1), at_least=1),
        "sum_weight": Number(0, 1000),
        "weekend": Whole(0, 6),
    },
)
FINDER_FIELDS = Fields(
    {"gap": OrNull(Whole(0, LATEST)), "prior": Number(-50, 50), "caution": Number()}, {"constants": FINDER_CONSTANTS}
)


def _pair_tables(name: str, pairs: str, codes: str) -> dict[str, "Table"]:
    """Pairs of items, one behind the other, as floats or as bytes.

    Args:
        name: of the tables.
        pairs: the name of their length.
        codes: the name of how many codes there are.
    """
    return {
        f"{name}.kept": Table(("U8", "I32"), ("items + 1",), low=0, high=MOST_ITEMS),
        f"{name}.columns": Table(("U16", "I32"), (pairs,), low=0, high=MOST_ITEMS),
        f"{name}.counts": Table(("F32", "F64"), (pairs,), low=0),
        f"{name}.lower": Table(("U8", "U16", "U32"), (pairs,), low=0, high=2**32),
        f"{name}.bytes": Table(BYTES, (pairs,), low=0, high=255),
        f"{name}.values": Table(("F32",), (codes,), low=0),
    }


WEIGHT_KINDS = (*FLOATS, *COUNTS, "I8", "I16", "I32", "I64", "BOOL")
WEIGHT = Table(WEIGHT_KINDS, None)  # any other table of the graph; the bounds hold for floats
ITEM_TABLE = Table(("F32", *BYTES), ("items", "item width"))
WEIGHT_TABLES = {
    "popularity": Table(COUNTS, ("items",), low=0, high=MOST_EVENTS),
    **_pair_tables("followers", "pairs", "codes"),
    "memory.ages": Table(("F32",), ("events read",), low=1, high=MOST_ITEMS),
    # Of a blend: followers up to a later time than training, neighbours, and what was frequent lately.
    **_pair_tables("newer_followers", "newer pairs", "newer codes"),
    **_pair_tables("neighbours", "neighbour pairs", "neighbour codes"),
    **_pair_tables("counted", "counted pairs", "counted codes"),  # of a simple baseline
    "followers.leaving": Table((*COUNTS, "F16", "F32"), ("items",), low=0, high=MOST_EVENTS),
    "newer_followers.leaving": Table((*COUNTS, "F16", "F32"), ("items",), low=0, high=MOST_EVENTS),
    "neighbours.top": Table(("F16", "F32"), ("items",), low=0, high=1),
    "trends.items": Table(("I32",), ("trends",), low=0, high=MOST_ITEMS),
    "trends.shares": Table(("F16", "F32"), ("half-lives", "trends"), low=0, high=1),
    "blend.rankable": Table(BYTES, ("items / 8",), low=0, high=255),
}

HISTORY_TABLES = {
    "offsets": Table(("I64",), ("accounts + 1",), low=0, high=MOST_EVENTS),
    "events": Table(("I32",), ("events",), low=0, high=MOST_ITEMS),
    "times": Table(("I64",), ("events",), low=EARLIEST, high=LATEST, optional=True),
    "held_offsets": Table(("I64",), ("accounts + 1",), low=0, high=MOST_EVENTS, optional=True),
    "held_items": Table(("I32",), ("held",), low=0, high=MOST_ITEMS, optional=True),
}
VECTOR_TABLES = {"account": Table(("F32",), ("accounts", "account width"))}


def item_tables(tables: int | str, bytes_and_scales: bool, timed: bool) -> dict[str, Table]:
    """The item tables of the people finder.

    Args:
        tables: their number.
        bytes_and_scales: schema 2 stored vectors as bytes with a scale for each row.
        timed: whether the logs had times.
    """
    tables_of_items = {
        "tables.vectors": Table(BYTES if bytes_and_scales else ("F32", *BYTES), (tables, "items", "taste")),
        "tables.events": Table(COUNTS, (tables, "items"), low=0, high=MOST_EVENTS),
    }
    if bytes_and_scales:
        tables_of_items["tables.scales"] = Table(FLOATS, (tables, "items"), low=0)
    if timed:
        tables_of_items["tables.first"] = Table(FLOATS, (tables, "items"), high=INFINITE)  # infinite: never seen
        tables_of_items["tables.middle"] = Table(FLOATS, (tables, "items"))
    return tables_of_items


def finder_tables(timed: bool) -> dict[str, Table]:
    """The other tables of the people finder.

    A session has 2 features, and 8 more with times; a pair has three numbers for each feature and 3 more, and 2 more
    with times. A spread is infinite where nothing was learned.
    """
    traits = 10 if timed else 2
    pair = 3 * traits + (5 if timed else 3)
    return {
        "traits.centre": Table(FLOATS, (traits,)),
        "traits.spread": Table(FLOATS, (traits,), low=1e-10),
        "contrast.centre": Table(FLOATS, (pair,)),
        "contrast.spread": Table(FLOATS, (pair,), low=1e-10, high=INFINITE),
        "contrast.inward": Table(FLOATS, (pair, "hidden")),
        "contrast.threshold": Table(FLOATS, ("hidden",)),
        "contrast.outward": Table(FLOATS, ("hidden",)),
        "contrast.straight": Table(FLOATS, (pair,)),
        "contrast.constant": Table(FLOATS, (1,)),
        "count.centre": Table(FLOATS, ("features",)),
        "count.spread": Table(FLOATS, ("features",), low=1e-10, high=INFINITE),
        "count.weights": Table(FLOATS, ("2 features + 1", MOST_PEOPLE)),
    }


FOLD = Table(COUNTS, ("accounts",), low=0)
COUNTED_BY = (OF_EVIDENCE, FEATURES)  # earlier versions counted by the evidence alone

# The inputs and outputs of the graph: type, and the length of each axis; "any" is free, others are as in the config.
LONG, FLOAT = "tensor(int64)", "tensor(float)"
INPUTS = {"history": (LONG, ("any", "any")), "handicap": (FLOAT, ("any", "items")), "k": (LONG, (1,))}
OPTIONAL_INPUTS = {"account": (FLOAT, ("any", "account_width")), "held": (LONG, ("any", "any"))}
OUTPUTS = {
    "best_scores": (FLOAT, ("any", "any")),
    "best_items": (LONG, ("any", "any")),
    "scores": (FLOAT, ("any", "items")),
}
USER_OUTPUTS = {"ownership": (FLOAT, ("any", "latent_users", "any")), "weights": (FLOAT, ("any", "latent_users"))}


def check_config(config: dict[str, Any], where: str) -> None:
    """Check `config.json`."""
    CONFIG_FIELDS.check(config, f"{where}: ")
    stop = 0
    for place, domain in enumerate(config["data"]["domains"]):
        at = f"{where}: data.domains[{place}]"
        need(domain["start"] == stop < domain["stop"], at, f"items from {stop:,} on", domain)
        stop = domain["stop"]
    need(stop == config["items"], f"{where}: data.domains", f"{config['items']:,} items in all", stop)


def check_graph(session: Any, config: dict[str, Any], where: str) -> None:
    """Check the names, types and shapes of the graph's inputs and outputs."""
    inputs = {one.name: one for one in session.get_inputs()}
    outputs = {one.name: one for one in session.get_outputs()}
    for name in inputs.keys() - INPUTS.keys() - OPTIONAL_INPUTS.keys():
        raise DataError(
            f"{where}: input {name!r} is not among {', '.join((*INPUTS, *OPTIONAL_INPUTS))}. {EXPORT_AGAIN}"
        )
    optional = {name: facts for name, facts in OPTIONAL_INPUTS.items() if name in inputs}
    wanted = OUTPUTS | (USER_OUTPUTS if config["latent_users"] else {})
    for kind, declared, actual in (("input", INPUTS | optional, inputs), ("output", wanted, outputs)):
        for name, (number, shape) in declared.items():
            at = f"{where}: {kind} {name}"
            need(name in actual, at, number, "nothing")
            need(actual[name].type == number, at, number, actual[name].type)
            lengths = tuple(config.get(one, one) if isinstance(one, str) else one for one in shape)
            need(_fits(actual[name].shape, lengths), at, f"shape {list(lengths)}", actual[name].shape)


def _fits(actual: list[Any], wanted: tuple[Any, ...]) -> bool:
    """Whether each axis is dynamic or has the expected length."""
    return len(actual) == len(wanted) and all(
        not isinstance(length, int) or length == one for length, one in zip(actual, wanted, strict=True)
    )
