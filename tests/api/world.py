"""A small log in every form that the API takes, and a run on it; each is made once for all tests of a process."""

from functools import cache
from typing import Any

import pandas as pd
import polars as pl

import lightgc2n as lg

ACCOUNTS, EVENTS, ITEMS = 24, 9, 15
FIRST = 1_704_110_400  # 2024-01-01 12:00 UTC
COLUMNS = {"account": "user_id", "item": "item_id", "time": "timestamp"}


def rows() -> dict[str, list[Any]]:
    """Each account walks a ring of items, two at a time; a step a day, the newest event first."""
    pairs = [(account, event) for account in range(ACCOUNTS) for event in reversed(range(EVENTS))]
    return {
        "user_id": [f"user{account}" for account, _ in pairs],
        "item_id": [f"i{(account + event * (1 + account % 2)) % ITEMS}" for account, event in pairs],
        "timestamp": [FIRST + 86_400 * event + account for account, event in pairs],
    }


def pandas_frame() -> pd.DataFrame:
    return pd.DataFrame(rows())


def polars_frame() -> pl.DataFrame:
    return pl.DataFrame(rows())


class ArrowFrame:
    """Nothing but the Arrow PyCapsule interface, as pyarrow, duckdb and others have it."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


def arrow_frame() -> ArrowFrame:
    return ArrowFrame(polars_frame())


@cache
def data() -> lg.Dataset:
    return lg.Dataset.from_frame(pandas_frame(), **COLUMNS, progress=False)


@cache
def run() -> lg.Run:
    settings = {"width": 8, "max_length": 10}
    return lg.train(data(), model="lightgc2n-plus", epochs=2, settings=settings, progress=False)
