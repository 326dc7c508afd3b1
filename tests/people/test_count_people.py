"""How many people: features by hand and by a loop, slopes by small differences, and caution."""

import numpy as np
import pytest

from lightgc2n.data.dataset import Longs
from lightgc2n.people import assigning
from lightgc2n.people.assigning import fits, ratios_of
from lightgc2n.people.count_people import (
    CAUTION,
    SHARES,
    WITHOUT_HABITS,
    CountHead,
    at_most,
    chances,
    decide,
    expanded,
    features_and_people,
    fitting_caution,
    learn_head,
    plain_head,
    share_likelihoods,
    slopes,
)
from lightgc2n.people.sessions import Floats
from tests.people.test_assigning import blocks


def features_of(evidence: Floats, size: Longs, again: float) -> Floats:
    return features_and_people(evidence, size, again)[0]


def test_likelihoods_of_shares_by_hand() -> None:
    # A pair 3 times as likely one person's, one half as likely: if all are, (log 3 + log 0.5) / 2.
    found = share_likelihoods(np.log([3.0, 0.5]))
    assert found[-1] == pytest.approx((np.log(3) + np.log(0.5)) / 2)
    assert found[SHARES.tolist().index(0.4)] == pytest.approx((np.log(1 + 0.4 * 2) + np.log(1 - 0.4 * 0.5)) / 2)


def test_how_sessions_fit_by_a_loop() -> None:
    random = np.random.default_rng(0)
    evidence, weight, belongs = blocks(np.arange(5) % 2, 1.0), random.uniform(1, 3, 5), random.dirichlet(np.ones(2), 5)
    for i in range(5):
        for person in range(2):
            mass = [weight[j] * belongs[j, person] for j in range(5) if j != i]
            like = sum(m * np.exp(evidence[i, j]) for m, j in zip(mass, (j for j in range(5) if j != i), strict=True))
            fit = fits(ratios_of(evidence), belongs * weight[:, None])[i, person]
            assert fit == pytest.approx(np.log((like + 1) / (sum(mass) + 1)))


def test_features_of_two_people_by_hand() -> None:
    # Two people with two sessions each; evidence 4 inside, -4 across: two pairs inside, four across.
    evidence = 4 * blocks(np.array([0, 0, 1, 1]))
    found = features_of(evidence, np.ones(4, dtype=np.int64), again=0.0)
    assert len(found) == WITHOUT_HABITS
    assert found[:2] == pytest.approx([-4 / 3, 4 * np.sqrt(1 - 1 / 9)])
    likely = [2 * np.log1p(share * np.expm1(4)) + 4 * np.log1p(share * np.expm1(-4)) for share in SHARES]
    assert found[2] == SHARES[np.argmax(likely)]
    assert found[3:10] == pytest.approx(np.array(likely) / 6)
    assert found[10:15] == pytest.approx([3, -1, -1, -1, 0])  # of (1, 1, -1, -1) 12, and -4 three times; by 4 sessions
    assert found[15] == pytest.approx((2 * 8 - 2 * 16) / 4)  # one person: every pair is inside, both ways round
    assert found[15:17].sum() == pytest.approx(2 * 8 / 4, abs=0.01)  # two people: only the pairs that are theirs
    assert found[20] == pytest.approx(np.log((np.exp(4) + 2 * np.exp(-4) + 1) / (3 + 1)))
    assert found[20:22].sum() == pytest.approx(np.log((np.exp(4) + 1) / (1 + 1)), abs=0.01)


def test_features_beside_the_evidence_by_hand() -> None:
    found = features_of(np.zeros((4, 4)), np.array([1, 1, 1, 8]), again=0.2)
    # Logarithms of sizes 0, 0, 0 and log 8: three are log 8 / 4 from their mean, one three times that.
    assert found[-2:] == pytest.approx([np.sqrt((3 * 1 + 9) / 4) * np.log(8) / 4, np.log(21)])


def test_sizes_that_are_all_alike_say_nothing() -> None:
    alike = [features_of(np.zeros((n, n)), np.full(n, 3), again=0.0)[-2] for n in (7, 10)]
    head = learn_head(np.array(alike)[:, None], np.array([1, 2]))
    assert np.isinf(head.spread).all()


def test_a_head_that_knows_fewer_features_asks_for_no_more() -> None:
    random = np.random.default_rng(0)
    head = CountHead(np.zeros(3), np.ones(3), random.normal(size=(7, 5)))
    features = random.normal(size=(2, 5))
    assert np.array_equal(chances(head, features), chances(head, features[:, :3]))


@pytest.mark.parametrize("sessions", [1, 2, 4])
def test_few_sessions_have_features_too(sessions: int) -> None:
    found = features_of(np.zeros((sessions, sessions)), np.ones(sessions, dtype=np.int64), 0.0)
    assert found.shape == (WITHOUT_HABITS,)
    assert np.isfinite(found).all()


def test_a_longer_log_of_the_same_look_has_the_same_share() -> None:
    for sessions in (20, 80):
        found = features_of(blocks(np.arange(sessions) % 2, 0.5), np.ones(sessions, dtype=np.int64), 0.0)
        assert 0.4 <= found[2] <= 0.7


def test_chances_by_hand() -> None:
    weights = np.zeros((3, 5))
    weights[:, 1] = [1.0, 2.0, 4.0]  # two people: a constant, the feature, half its square less one
    head = CountHead(np.array([1.0]), np.array([2.0]), weights)
    assert expanded(head, np.array([[5.0], [99.0]])) == pytest.approx(np.array([[1, 2, 1.5], [1, 4, 7.5]]))
    score = 1 + 2 * 2 + 4 * 1.5
    assert chances(head, np.array([[5.0]]))[0] == pytest.approx(
        np.array([1, np.exp(score), 1, 1, 1]) / (4 + np.exp(score))
    )


def test_chances_where_some_counts_cannot_be() -> None:
    assert at_most(np.array([0.2, 0.3, 0.1, 0.3, 0.1]), 2).tolist() == pytest.approx([0.4, 0.6, 0, 0, 0])
    assert at_most(np.array([0.2, 0.3, 0.5]), 9).tolist() == pytest.approx([0.2, 0.3, 0.5])


def test_one_person_is_favoured() -> None:
    likely = np.array([[0.3, 0.4, 0.1, 0.1, 0.1], [0.2, 0.4, 0.2, 0.1, 0.1]])
    assert decide(likely, 0.0).tolist() == [2, 2]
    assert decide(likely, 0.5).tolist() == [1, 2]  # log(0.4 / 0.3) is 0.29, log(0.4 / 0.2) is 0.69
    said = plain_head()
    assert chances(said, np.zeros((1, WITHOUT_HABITS)))[0, 0] == pytest.approx(0.8, abs=1e-9)


def test_as_much_caution_as_known_singles_need() -> None:
    # Ten singles; the odds of two people against one are 1/4, 1/3 ..., and 3 and 4 for the last two of them.
    two = np.array([0.2, 0.25, 0.3, 0.1, 0.4, 0.2, 0.3, 0.1, 0.75, 0.8, 0.9])
    likely = np.column_stack([1 - two, two])
    people = np.array([1] * 10 + [2])
    found = fitting_caution(likely, people)
    assert found == pytest.approx(np.log(3))  # more than 15 % would be split without, one in ten is with it
    assert (decide(likely, found)[:10] > 1).sum() == 1
    assert fitting_caution(likely[:8], people[:8]) == 0
    assert fitting_caution(likely[10:], people[10:]) == CAUTION


def test_slopes_of_the_head_are_those_of_its_loss() -> None:
    random = np.random.default_rng(0)
    head = CountHead(np.zeros(2), np.ones(2), random.normal(size=(5, 5)))
    rows, target, weight = (
        random.normal(size=(6, 5)),
        np.eye(5)[random.integers(5, size=6)],
        random.dirichlet(np.ones(6)),
    )

    def loss() -> float:
        scores = rows @ head.weights
        entropy = np.log(np.exp(scores).sum(axis=1)) - (scores * target).sum(axis=1)
        return float(weight @ entropy + 0.3 / 2 * (head.weights**2).sum())

    found = slopes(head, rows, target, weight, 0.3)
    for place in np.ndindex(5, 5):
        plain = head.weights[place]
        head.weights[place] = plain + 1e-6
        above = loss()
        head.weights[place] = plain - 1e-6
        assert found[place] == pytest.approx((above - loss()) / 2e-6, abs=1e-6)
        head.weights[place] = plain


def test_a_head_learns_what_there_is_and_keeps_to_the_prior() -> None:
    random = np.random.default_rng(0)
    people = random.integers(1, 6, size=1000)
    told = np.column_stack([people + random.normal(0, 0.3, 1000), random.normal(size=1000)])
    likely = chances(learn_head(told, people), told)
    assert (decide(likely, 0) == people).mean() > 0.8
    nothing = random.normal(size=(1000, 2))
    prior = np.array([0.5, 0.2, 0.1, 0.1, 0.1])
    assert chances(learn_head(nothing, people, prior), nothing).mean(axis=0) == pytest.approx(prior, abs=0.05)
    assert np.isfinite(chances(learn_head(np.ones((9, 2)), np.ones(9, dtype=np.int64)), np.zeros((1, 2)))).all()


def test_the_work_of_counting_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    plain = assigning.mean_field_step

    def counted(*given: np.ndarray) -> np.ndarray:
        calls.append(1)
        return np.asarray(plain(*given))

    monkeypatch.setattr(assigning, "mean_field_step", counted)
    steps = []
    for noise in (0.0, 3.0):
        features_of(blocks(np.arange(20) % 4, noise), np.ones(20, dtype=np.int64), 0.0)
        steps.append(len(calls))
        calls.clear()
    assert steps[0] == steps[1] == assigning.STEPS  # two to five people side by side
