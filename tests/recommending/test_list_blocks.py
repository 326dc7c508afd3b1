"""Lists of many accounts are written from arrays: the same files as from single lists, byte for byte."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import lightgc2n.recommending.write_recommendations as writing
from lightgc2n.recommending.list_blocks import ListBlock
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.results import Recommendation, Recommendations
from lightgc2n.recommending.write_recommendations import write_list_blocks, write_recommendations
from tests.recommending.test_recommender import recommender, world  # noqa: F401

FORMATS = [".csv", ".jsonl", ".parquet"]
ITEMS = ["plain", "with, comma", 'with "quotes"', "two\nlines", "é ü 漢", " space ", "tab\t"]
ACCOUNTS = ["ann", 'b"o"b', "c,d", "e\nf", "ж"]


def block(seed: int) -> ListBlock:
    random = np.random.default_rng(seed)
    shape = len(ACCOUNTS), 4
    scores = np.sort(random.normal(scale=10.0 ** random.integers(-9, 9), size=shape).astype(np.float32))[:, ::-1]
    counts = random.integers(0, 5, size=len(ACCOUNTS))
    return ListBlock(ACCOUNTS, random.integers(len(ITEMS), size=shape), scores, counts, [])


def lists_of(blocks: list[ListBlock]) -> Iterator[Recommendations]:
    """The same lists one by one, the slow way."""
    for one in blocks:
        for row, account in enumerate(one.accounts):
            places = range(int(one.counts[row]))
            entries = [(ITEMS[one.items[row, at]], float(one.scores[row, at]), at + 1) for at in places]
            yield Recommendations(account, tuple(Recommendation(*entry) for entry in entries))


@pytest.mark.parametrize("ending", FORMATS)
def test_blocks_and_single_lists_give_the_same_file(ending: str, tmp_path: Path) -> None:
    blocks = [block(seed) for seed in range(20)]
    write_list_blocks(tmp_path / f"blocks{ending}", blocks, ITEMS)
    write_recommendations(tmp_path / f"lists{ending}", lists_of(blocks))
    if ending == ".parquet":
        actual, wanted = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("blocks", "lists"))
        assert actual.schema == wanted.schema
        assert actual.rows() == wanted.rows()
        assert len(actual) == sum(int(one.counts.sum()) for one in blocks)
    else:
        assert (tmp_path / f"blocks{ending}").read_bytes() == (tmp_path / f"lists{ending}").read_bytes()


@pytest.mark.parametrize("has_polars", [True, False])
def test_scores_are_written_as_python_writes_them(has_polars: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle is served, and lists its items, without polars."""
    if not has_polars:
        monkeypatch.setattr(writing, "find_spec", lambda name: None)
    random = np.random.default_rng(0)
    sizes = 10.0 ** random.integers(-42, 37, size=5000)
    edges = [0.0, -0.0, 1e-4, 9.9999e-5, 1e15, 1e16, 9.9e15, 1.0, -123456.0, 1e-45, 0.1, 1 / 3]
    scores = np.concatenate([edges, random.normal(size=5000) * sizes]).astype(np.float32)
    assert writing._texts(scores) == [repr(float(score)) for score in scores]


@pytest.mark.parametrize("ending", FORMATS)
def test_without_lists_the_file_has_columns_alone(ending: str, tmp_path: Path) -> None:
    write_list_blocks(tmp_path / f"blocks{ending}", [], ITEMS)
    write_recommendations(tmp_path / f"lists{ending}", [])
    assert (tmp_path / f"blocks{ending}").read_bytes() == (tmp_path / f"lists{ending}").read_bytes()


@pytest.mark.parametrize("ending", FORMATS)
def test_an_error_midway_leaves_no_file(ending: str, tmp_path: Path) -> None:
    def broken() -> Iterator[ListBlock]:
        yield block(0)
        raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        write_list_blocks(tmp_path / f"blocks{ending}", broken(), ITEMS)
    assert list(tmp_path.iterdir()) == []


def test_parquet_is_written_while_lists_are_computed(tmp_path: Path) -> None:
    """Most of the file is on disk before the last list is computed."""
    names, shape = [f"user{row}" for row in range(20_000)], (20_000, 20)
    written = []

    def blocks() -> Iterator[ListBlock]:
        for seed in range(20):
            written.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
            random = np.random.default_rng(seed)
            items = random.integers(len(ITEMS), size=shape)
            yield ListBlock(names, items, random.random(shape, dtype=np.float32), np.full(len(names), 20), [])

    write_list_blocks(tmp_path / "lists.parquet", blocks(), ITEMS)
    assert written[-1] > 0.2 * (tmp_path / "lists.parquet").stat().st_size


def test_blocks_of_a_run_are_its_lists(recommender: Recommender) -> None:  # noqa: F811
    accounts = list(recommender.dataset.accounts)[::-1]
    for options in ({"k": 7}, {"k": 10_000, "exclude_seen": True}, {"deny": recommender.dataset.items[5:]}):
        wanted = list(recommender.recommend_many(accounts, **options))
        blocks = list(recommender.list_blocks(accounts, **options))
        rows = [row for one in blocks for row in one.rows()]
        ids = recommender.dataset.items
        assert [account for account, _, _ in rows] == accounts
        for (_, items, scores), single in zip(rows, wanted, strict=True):
            assert [(ids[item], score) for item, score in zip(items, scores, strict=True)] == [
                one[:2] for one in single
            ]
        notes = [(one.account_id, note) for one in wanted for note in one.notes]
        assert [note for one in blocks for note in one.notes] == notes
