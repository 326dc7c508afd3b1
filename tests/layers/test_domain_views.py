"""Views of mixed logs and queries of every domain, by hand and against slow loops."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor
from torch.testing import assert_close

from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.layers.domain_views import (
    cut_at,
    draw_cuts,
    draw_queries,
    draw_several,
    newest_views,
    targets_after,
    view_of,
)

DOMAINS = (Domain("A", 0, 10), Domain("B", 10, 20))
MIXED = st.lists(st.lists(st.integers(0, 19), max_size=8), min_size=1, max_size=4)


def batch_of(*logs: list[int], padding: int = 3) -> Batch:
    widest = max(1, max(len(log) for log in logs))
    table = tensor([log + [padding] * (widest - len(log)) for log in logs])
    return Batch(torch.arange(len(logs)), table, tensor([len(log) for log in logs]))


def training_of(*logs: list[int], given: list[list[int]] | None = None) -> TrainingBatch:
    """Logs of n events as rows of n - 1 places."""
    widest = max(len(log) for log in logs) - 1
    place = torch.arange(widest)
    length = tensor([len(log) - 1 for log in logs])[:, None]
    log = tensor([row[:-1] + [0] * (widest + 1 - len(row)) for row in logs])
    after = tensor([row[1:] + [0] * (widest + 1 - len(row)) for row in logs])
    batch = TrainingBatch.of_rows(torch.arange(len(logs)), log, after, place < length, place < length)
    return batch if given is None else TrainingBatch(**batch.tensors(), domain_targets=tensor(given))


def test_views_by_hand() -> None:
    batch = batch_of([1, 11, 12, 2, 13], [14])  # A1 B1 B2 A2 B3, and B4 alone
    first, second = (view_of(batch, domain) for domain in DOMAINS)
    assert first.items.tolist() == [[1, 2], [0, 0]]
    assert first.known.tolist() == [[True, True], [False, False]]
    assert first.others.tolist() == [[0, 2], [0, 0]]
    assert second.items.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert second.others.tolist() == [[1, 1, 2], [0, 0, 0]]
    assert second.place.tolist() == [[1, 2, 4], [0, 0, 0]]
    assert second.length.tolist() == [3, 1]


@given(MIXED, st.integers(0, 19))
def test_views_are_those_of_a_loop(logs: list[list[int]], padding: int) -> None:
    batch = batch_of(*logs, padding=padding)
    for domain in DOMAINS:
        view = view_of(batch, domain)
        for row, log in enumerate(logs):
            mine = [
                (item - domain.start, place) for place, item in enumerate(log) if domain.start <= item < domain.stop
            ]
            known = view.known[row]
            assert list(zip(view.items[row, known].tolist(), view.place[row, known].tolist(), strict=True)) == mine
            assert view.others[row, known].tolist() == [place - own for own, (_, place) in enumerate(mine)]


@given(MIXED)
def test_newest_views_are_those_of_logs_that_were_short_from_the_start(logs: list[list[int]]) -> None:
    short = []
    for log in logs:
        newest = [[p for p, item in enumerate(log) if d.start <= item < d.stop][-2:] for d in DOMAINS]
        short.append([log[place] for place in sorted(newest[0] + newest[1])])
    for actual, expected in zip(
        newest_views(batch_of(*logs), DOMAINS, 2), (view_of(batch_of(*short), d) for d in DOMAINS), strict=True
    ):
        for row in range(len(logs)):
            a, b = actual.known[row], expected.known[row]
            assert actual.items[row, a].tolist() == expected.items[row, b].tolist()
            assert actual.others[row, a].tolist() == expected.others[row, b].tolist()


def test_targets_of_every_domain_by_hand() -> None:
    actual = targets_after(training_of([1, 11, 12, 2], [15, 16]), DOMAINS)
    assert actual[0].tolist() == [[2, 11], [2, 12], [2, -1]]
    assert actual[1, 0].tolist() == [-1, 16]


def test_given_targets_come_after_the_whole_log() -> None:
    shown, targets = draw_queries(training_of([1, 11, 12], [2, 13], given=[[7, 17], [-1, 18]]), DOMAINS)
    assert [row[:length].tolist() for row, length in zip(shown.history, shown.length, strict=True)] == [
        [1, 11, 12],
        [2, 13],
    ]
    assert targets.tolist() == [[7, 17], [-1, 18]]


def test_questions_are_those_after_the_cut() -> None:
    batch = training_of([1, 11, 12, 2], [15, 16])
    after = targets_after(batch, DOMAINS)
    for seed in range(20):
        torch.manual_seed(seed)
        shown, targets = draw_queries(batch, DOMAINS)
        assert targets.tolist() == [after[row, length - 1].tolist() for row, length in enumerate(shown.length.tolist())]


def test_cuts_are_drawn_from_all_places_with_a_target() -> None:
    batch = training_of([1, 2, 3, 4], [5, 6])
    torch.manual_seed(0)
    drawn = torch.stack([draw_cuts(batch) for _ in range(200)])
    assert drawn[:, 0].unique().tolist() == [0, 1, 2]
    assert drawn[:, 1].unique().tolist() == [0]


def test_what_is_shown_at_a_cut() -> None:
    batch = training_of([1, 11, 2, 12], [5, 6])
    shown = cut_at(batch, tensor([1, 0]))
    assert shown.length.tolist() == [2, 1]
    assert [row[:length].tolist() for row, length in zip(shown.history, shown.length, strict=True)] == [[1, 11], [5]]


def test_ages_at_a_cut_are_the_days_to_the_next_event() -> None:
    batch = training_of([1, 11, 2, 12])
    timed = TrainingBatch(**batch.tensors(), gaps=tensor([[1.0, 2.0, 4.0]]))  # events at the days 0, 1, 3, 7
    shown = cut_at(timed, tensor([1]))
    assert shown.ages is not None
    assert_close(shown.ages, tensor([[3.0, 2.0, 0.0]]))  # asked on day 3, when the third event comes


def test_several_questions_a_log_are_as_many_draws() -> None:
    batch = training_of([1, 11, 12, 2], [15, 16])
    torch.manual_seed(0)
    once = [draw_queries(batch, DOMAINS) for _ in range(3)]
    torch.manual_seed(0)
    asked, targets = draw_several(batch, DOMAINS, 3)
    assert targets.tolist() == [row for _, target in once for row in target.tolist()]
    assert asked.history.tolist() == [row for one, _ in once for row in one.history.tolist()]
    assert asked.length.tolist() == [length for one, _ in once for length in one.length.tolist()]
    assert asked.account.tolist() == [0, 1] * 3
    given_once, _ = draw_several(training_of([1, 11], given=[[7, 17]]), DOMAINS, 3)
    assert given_once.history.tolist() == [[1, 11]]
