import gc

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgc2n.data.formats.id_codes import Coder


def test_numbers_follow_first_appearance() -> None:
    coder = Coder()
    assert coder.codes(pl.Series(["b", "a", "b", None, "007", "7"])).tolist() == [0, 1, 0, -1, 2, 3]
    assert coder.ids() == ["b", "a", "007", "7"]


def test_known_ids_come_first() -> None:
    coder = Coder(["x", "y"])
    assert coder.codes(pl.Series(["z", "y"])).tolist() == [2, 1]
    assert coder.ids() == ["x", "y", "z"]


def test_numbers_last_although_nothing_holds_the_series() -> None:
    coder, by_hand = Coder(), {}
    for block in range(12):
        ids = [f"id {(block * 37 + number * number) % 100}" for number in range(50)]
        codes = coder.codes(pl.Series(ids)).tolist()
        gc.collect()
        assert codes == [by_hand.setdefault(one, len(by_hand)) for one in ids]
    assert coder.ids() == list(by_hand)


def test_a_coder_without_ids_is_empty() -> None:
    coder = Coder()
    gc.collect()
    assert coder.ids() == []
    assert coder.codes(pl.Series([], dtype=pl.String)).tolist() == []
    assert coder.codes(pl.Series([None], dtype=pl.String)).tolist() == [-1]


def test_coders_share_nothing() -> None:
    one, other = Coder(), Coder()
    one.codes(pl.Series(["a", "b"]))
    assert other.codes(pl.Series(["b"])).tolist() == [0]
    assert one.ids() == ["a", "b"]


def test_a_series_of_many_chunks_is_numbered_in_order() -> None:
    parts = [pl.Series([f"{(start * 7919 + step) % 10_007}" for step in range(2000)]) for start in range(20)]
    coder, by_hand = Coder(), {}
    codes = coder.codes(pl.concat(parts, rechunk=False)).tolist()
    assert codes == [by_hand.setdefault(one, len(by_hand)) for part in parts for one in part]


@settings(deadline=None, max_examples=50)
@given(blocks=st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1), max_size=5))
def test_any_ids(blocks: list[list[str]]) -> None:
    coder, by_hand = Coder(), {}
    for block in blocks:
        assert coder.codes(pl.Series(block)).tolist() == [by_hand.setdefault(one, len(by_hand)) for one in block]
    assert coder.ids() == list(by_hand)
