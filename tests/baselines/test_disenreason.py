"""The DisenReason-style reconstruction: every equation in slow loops, when it stops, and the size of the model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, tensor
from torch.nn.functional import cosine_similarity, cross_entropy, layer_norm
from torch.testing import assert_close

from lightgc2n.baselines.disenreason import (
    DisenReasonConfig,
    DisenReasonStyle,
    before_repetition,
    frequencies_of,
    similarity_penalty,
)
from lightgc2n.data.batches import Batch, make_batch, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.metrics.ranks import ranks_in_domains
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_in_memory
from tests.worlds import dataset_of, two_domains_world


def parameter_count(config: DisenReasonConfig, accounts: int, items: int) -> int:
    """(M + L + K)·D + 7D² + 12D, and parts by their settings.

    2·F·D for a learned filter with F = L // 2 + 1; D² + 2D unless the bands' mean is taken; D² for the weighted
    read-out; N·D + D² with accounts.
    """
    width = config.width
    total = (items + config.max_length + config.max_users) * width + 7 * width**2 + 12 * width
    total += 2 * frequencies_of(config.max_length) * width * (config.filter == "learned")
    total += (width**2 + 2 * width) * (config.fusion != "mean")
    total += width**2 * (config.readout == "weighted")
    return total + (accounts * width + width**2) * config.account


ITEMS, ACCOUNTS, WIDTH = 12, 3, 4
ALL = Domain("all", 0, ITEMS)


def model(**settings: object) -> DisenReasonStyle:
    torch.manual_seed(0)
    config = DisenReasonConfig(**{"width": WIDTH, "max_length": 5, "max_users": 4, "bands": 2, **settings})
    made = DisenReasonStyle(config, ACCOUNTS, ITEMS)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # from all the same to all different
    return made.eval()


def histories(*logs: list[int], account: int = -1) -> Batch:
    table = torch.full((len(logs), max(1, *map(len, logs))), 7)  # padding that would be seen if it were read
    for row, log in enumerate(logs):
        table[row, : len(log)] = tensor(log, dtype=torch.long)
    return Batch(torch.full((len(logs),), account), table, tensor([len(log) for log in logs]))


def bands_by_loops(made: DisenReasonStyle, events: Tensor) -> Tensor:
    """The Fourier sums written out: B_q of five places, the frequencies 0 1 | 2, with the filter where there is one."""
    length, bands = len(events), []
    factors = torch.view_as_complex(made.bands.filter) if made.config.filter == "learned" else torch.ones(3, WIDTH)
    for kept in ([0, 1], [2]):
        total = torch.zeros(length, WIDTH)
        for frequency in kept:
            for feature in range(WIDTH):
                wave = torch.exp(2j * torch.pi * frequency * torch.arange(length) / length)
                amount = factors[frequency, feature] * (events[:, feature] * wave.conj()).sum()
                if frequency == 0:
                    amount = amount.real + 0j  # the imaginary part of a mean has no meaning
                total[:, feature] += (amount * wave).real / length * (1 if frequency == 0 else 2)
        bands.append(total)
    return torch.stack(bands)


def feed_forward(made: DisenReasonStyle, vector: Tensor) -> Tensor:
    hidden = made.inner.weight @ vector + made.inner.bias
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))  # GELU
    return made.outer.weight @ hidden + made.outer.bias


def norm(part: torch.nn.LayerNorm, vector: Tensor) -> Tensor:
    return layer_norm(vector, (WIDTH,), part.weight, part.bias)


def by_loops(made: DisenReasonStyle, log: list[int], account: int = -1) -> tuple[Tensor, list[Tensor], Tensor]:
    """Pivot, the users that count, and the newest event, one after the other."""
    read = log[-5:]
    events = torch.zeros(5, WIDTH)
    for place, item in enumerate(read, start=5 - len(read)):
        events[place] = norm(made.input_norm, made.items[item] + made.positions[place])
    split = bands_by_loops(made, events)[:, 5 - len(read) :]
    bands = [torch.stack([norm(made.band_norm, row + feed_forward(made, row)) for row in band]) for band in split]
    summaries = [torch.softmax(band @ made.importance[0], dim=0) @ band for band in bands]
    share = made.fusion(torch.stack(summaries)[None])[0]
    memory = sum(part * band for part, band in zip(share, bands, strict=True))
    pivot = sum(part * summary for part, summary in zip(share, summaries, strict=True))
    if account >= 0:
        pivot = pivot + made.from_account.weight @ made.accounts[account]
    rest, users = pivot, []
    for step in range(made.config.max_users):
        asking = made.ask.weight @ rest + made.steps[step]
        fit = torch.stack([asking @ (made.recall.weight @ row) for row in memory]) / WIDTH**0.5
        user = norm(made.user_norm, feed_forward(made, torch.softmax(fit, dim=0) @ memory) + asking)
        if users and cosine_similarity(user, users[-1], dim=0) > made.config.threshold:
            break
        users.append(user)
        rest = norm(made.rest_norm, rest - made.removal @ user)
    return pivot, users, memory[-1]


def outputs_by_loops(made: DisenReasonStyle, log: list[int], account: int = -1) -> list[Tensor]:
    pivot, users, newest = by_loops(made, log, account)
    if made.config.readout == "max":
        return [pivot + user for user in users]
    share = torch.softmax(torch.stack([user @ (made.readout.newest.weight @ newest) for user in users]), dim=0)
    return [pivot + sum(part * user for part, user in zip(share, users, strict=True))]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"threshold": 0.2, "readout": "max"},
        {"filter": "none", "fusion": "mean", "threshold": 1.0},
        {"fusion": "gate", "readout": "max", "threshold": 0.5},
        {"account": True},
    ],
)
def test_scores_are_those_of_loops(settings: dict[str, object]) -> None:
    made, logs = model(**settings), [[3, 1, 4, 1, 5, 9, 2], [9, 2], [6]]
    actual = made.scores(made.encode(), histories(*logs, account=1), ALL)
    for row, log in enumerate(logs):
        outputs = outputs_by_loops(made, log, account=1 if made.config.account else -1)
        expected = torch.stack([made.items @ output for output in outputs]).amax(dim=0)
        assert_close(actual[row], expected, rtol=1e-4, atol=1e-5)


def test_the_number_of_users_differs_between_histories() -> None:
    made = model(threshold=0.3)
    logs = [[int(item) for item in torch.randint(ITEMS, (4,))] for _ in range(30)]
    with torch.no_grad():
        actual = made.of_histories(histories(*logs)).active.sum(dim=1).tolist()
    assert actual == [len(by_loops(made, log)[1]) for log in logs]
    assert len(set(actual)) > 1


def test_it_stops_before_the_first_user_that_is_the_one_before() -> None:
    east, north = [1.0, 0.0], [0.0, 2.0]
    users = tensor(
        [[east, north, east, east, north], [east, east, north, east, north], [north, east, north, east, north]]
    )
    expected = [[True, True, True, False, False], [True, False, False, False, False], [True] * 5]
    assert before_repetition(users, 0.8).tolist() == expected
    assert before_repetition(users, 1.0).all()  # never stops


def test_without_the_residual_it_stops_at_once() -> None:
    """What is left stays the same, so the second user is the first one."""
    made = model(threshold=0.8)
    with torch.no_grad():
        made.removal.zero_()
        made.steps.zero_()
        for part in (made.rest_norm, made.user_norm):
            part.weight.fill_(1)
            part.bias.zero_()
        made.ask.weight.copy_(torch.eye(WIDTH) * 100)  # asks so loudly that only the direction is heard
    pivot = norm(made.rest_norm, torch.randn(6, WIDTH))  # of the length that it keeps
    _, active = made.user_vectors(pivot, torch.randn(6, 3, WIDTH), torch.ones(6, 3, dtype=torch.bool))
    assert active.sum(dim=1).tolist() == [1] * 6


def test_likeness_by_hand() -> None:
    """The cosines are 0.6 (1, 2), 1 (1, 3) and 0.6 (2, 3); beyond 0.5 there are 0.1, 0.5 and 0.1."""
    users = tensor([[[1.0, 0.0], [3.0, 4.0], [2.0, 0.0]]])
    everyone = torch.ones(1, 3, dtype=torch.bool)
    assert_close(similarity_penalty(users, everyone, 0.5), tensor((0.01 + 0.25 + 0.01) / 3))
    assert_close(similarity_penalty(users, tensor([[True, True, False]]), 0.5), tensor(0.01))
    assert_close(similarity_penalty(users, tensor([[True, False, False]]), 0.5), tensor(0.0))


@pytest.mark.parametrize("readout", ["weighted", "max"])
def test_the_loss_reads_the_output_nearest_to_the_target(readout: str) -> None:
    made = model(readout=readout, cuts=9, threshold=0.9)
    letters = " ".join("abcdefghijkl")
    split = split_dataset(dataset_of([("a", "d b e b f a a"), ("b", "j c h h")], items=letters), SplitConfig())
    batch = next(training_batches(split.train, 2))  # d b e b -> b e b f, and j -> c
    terms = []
    for log, target in (([3], 1), ([3, 1], 4), ([3, 1, 4], 1), ([3, 1, 4, 1], 5), ([9], 2)):
        nearest = max(outputs_by_loops(made, log), key=lambda output: float((output @ made.items[target]).detach()))
        terms.append(cross_entropy(made.items @ nearest, tensor(target)))
    actual = made.losses(made.encode(), batch)["next_item"]
    assert_close(actual, torch.stack(terms).mean(), rtol=1e-4, atol=1e-5)


def test_an_empty_history_and_a_stranger_are_scored() -> None:
    made = model(account=True)
    actual = made.scores(made.encode(), histories([], [3, 1], account=2), ALL)
    assert torch.isfinite(actual).all()
    assert_close(actual[1:], made.scores(made.encode(), histories([3, 1], account=2), ALL))
    folded = made.fold_in_scores(made.encode(), histories([3, 1], account=2), ALL)
    assert_close(folded, made.scores(made.encode(), histories([3, 1], account=-1), ALL))
    assert not torch.allclose(folded, actual[1:])


@pytest.mark.parametrize(
    "settings",
    [
        {"width": 6, "bands": 2, "max_users": 2},
        {"width": 5, "max_length": 7, "account": True, "fusion": "gate"},
        {"width": 16, "filter": "none", "fusion": "mean", "readout": "max"},
    ],
)
def test_parameter_count(settings: dict[str, object]) -> None:
    config = DisenReasonConfig(**settings)
    actual = sum(parameter.numel() for parameter in DisenReasonStyle(config, 9, 17).parameters())
    assert actual == parameter_count(config, accounts=9, items=17)


def test_it_learns_both_domains_of_a_mixed_log() -> None:
    split = split_dataset(two_domains_world(), SplitConfig(ask="each-domain"))
    quick = TrainingConfig(epochs=15, batch_size=8, learning_rate=0.01, patience=15)
    made = train_in_memory("disenreason-style", split, {"width": 16}, quick)[0]
    learned = np.ones(split.train.items, dtype=bool)
    ranks = ranks_in_domains("disenreason-style", made, split.test, split.catalogues, learned=learned)
    for domain in split.train.domains:
        inside = (split.test.target >= domain.start) & (split.test.target < domain.stop)
        assert (ranks[inside] <= 5).mean() >= 0.9
    whole = make_batch(split.test.select(np.arange(4)))
    one = replace(whole, history=whole.history.clamp(max=19))  # nothing of the second domain
    parts = [made.scores(made.encode(), one, domain) for domain in split.train.domains]
    assert_close(torch.cat(parts, dim=1), made.scores(made.encode(), one, Domain("all", 0, split.train.items)))
