"""ComiRec-DR: maps, read-outs, drawn places, and the size of the model."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.baselines.comirec import ComiRec, ComiRecConfig
from lightgc2n.data.batches import Batch, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import SplitConfig, split_dataset
from tests.baselines.test_interest_routing import by_loops
from tests.worlds import WORLDS, dataset_of


def parameter_count(config: ComiRecConfig, accounts: int, items: int) -> int:
    """M·D + places·K·D² + 1, where places is max_length, or 1 for one shared map; accounts have none."""
    places = config.max_length if config.maps == "place" else 1
    return items * config.width + places * config.interests * config.width**2 + 1


ITEMS = 12
ALL = Domain("all", 0, ITEMS)


def model(**settings: object) -> ComiRec:
    torch.manual_seed(0)
    config = ComiRecConfig(**{"width": 4, "interests": 3, "max_length": 3, **settings})
    made = ComiRec(config, torch.ones(ITEMS))
    with torch.no_grad():
        made.items.normal_()
    return made.eval()


def interests_by_loops(made: ComiRec, log: list[int]) -> torch.Tensor:
    """The interests after a whole log: the newest event goes through the first map."""
    width, kept = made.config.width, log[-made.config.max_length :]
    read = kept[::-1] if made.config.align == "newest" else kept
    maps = made.maps.expand(made.config.max_length, -1, -1)
    votes = [(made.items[item] @ maps[place]).view(-1, width) for place, item in enumerate(read)]
    return by_loops(torch.stack(votes), made.config.routing_steps)


def history(*logs: list[int]) -> Batch:
    table = torch.full((len(logs), max(1, *map(len, logs))), 7)  # padding that would be seen if it were read
    for row, log in enumerate(logs):
        table[row, : len(log)] = torch.tensor(log, dtype=torch.long)
    return Batch(torch.zeros(len(logs), dtype=torch.long), table, torch.tensor([len(log) for log in logs]))


@pytest.mark.parametrize("maps", ["place", "shared"])
@pytest.mark.parametrize("align", ["newest", "oldest"])
def test_scores_are_those_of_the_best_interest(maps: str, align: str) -> None:
    made, logs = model(maps=maps, align=align), [[3, 1, 4, 1, 5], [9, 2]]
    actual = made.scores(made.encode(), history(*logs), ALL)
    for row, log in enumerate(logs):
        every = 10 * interests_by_loops(made, log) @ made.items.T  # 10: the first sharpness
        assert_close(actual[row], every.amax(dim=0), rtol=1e-4, atol=1e-5)


def test_the_ranking_merges_the_best_of_each_interest() -> None:
    """Top five of every interest, merged by score without doubles, as the authors serve."""
    made = model()
    logs = [[int(item) for item in torch.randint(ITEMS, (4,))] for _ in range(100)]
    actual = made.scores(made.encode(), history(*logs), ALL).topk(5).indices
    batch = history(*logs)
    interests = made.interests(batch.history, torch.arange(100), batch.length - 1)
    for row in range(100):
        best = (interests[row] @ made.items.T).topk(5)
        pairs = sorted(zip(best.values.flatten().tolist(), best.indices.flatten().tolist(), strict=True), reverse=True)
        assert actual[row].tolist() == list(dict.fromkeys(item for _, item in pairs))[:5]


def test_the_loss_reads_the_interest_nearest_to_the_target() -> None:
    made = model(cuts=9)
    letters = " ".join("abcdefghijkl")
    split = split_dataset(dataset_of([("a", "d b e b f a a"), ("b", "j c h h")], items=letters), SplitConfig())
    batch = next(training_batches(split.train, 2))  # d b e b -> b e b f, and j -> c
    terms = []
    for log, target in (([3], 1), ([3, 1], 4), ([3, 1, 4], 1), ([3, 1, 4, 1], 5), ([9], 2)):
        interests = interests_by_loops(made, log)
        nearest = max(interests, key=lambda interest: float((interest @ made.items[target]).detach()))
        terms.append(cross_entropy(10 * nearest @ made.items.T, torch.tensor(target)))
    actual = made.losses(made.encode(), batch)["next_item"]
    assert_close(actual, torch.stack(terms).mean(), rtol=1e-4, atol=1e-5)
    only_last = replace(batch, counts=torch.tensor([[False, False, False, True], [True, False, False, False]]))
    actual = made.losses(made.encode(), only_last)["next_item"]
    assert_close(actual, torch.stack(terms[3:]).mean(), rtol=1e-4, atol=1e-5)


def test_a_history_without_events_scores_all_alike() -> None:
    made = model()
    actual = made.scores(made.encode(), history([], [3, 1]), ALL)
    assert_close(actual[0], torch.zeros(ITEMS))
    assert_close(actual[1:], made.scores(made.encode(), history([3, 1]), ALL))
    assert_close(made.scores(made.encode(), history([], []), ALL), torch.zeros(2, ITEMS))


@pytest.mark.parametrize(
    "settings", [{"width": 6, "interests": 2}, {"width": 16, "max_length": 7}, {"width": 5, "maps": "shared"}]
)
def test_parameter_count(settings: dict[str, object]) -> None:
    config = ComiRecConfig(**settings)
    actual = sum(parameter.numel() for parameter in ComiRec(config, torch.ones(17)).parameters())
    assert actual == parameter_count(config, accounts=9, items=17)


def test_the_sampled_loss_is_saved_with_its_chances() -> None:
    split = split_dataset(WORLDS["tastes"], SplitConfig())
    made = zoo.build("comirec", split.train, {"loss": "sampled", "negatives": 20})
    weight = torch.from_numpy(split.train.popularity).float() ** 0.75
    assert_close(made.loss.chance, weight / weight.sum())
    again = ComiRec.restore(made.config, made.state_dict())
    batch = next(training_batches(split.train, 8))
    torch.manual_seed(0)
    first = made.eval().losses(made.encode(), batch)["next_item"]
    torch.manual_seed(0)
    assert_close(again.eval().losses(again.encode(), batch)["next_item"], first)
