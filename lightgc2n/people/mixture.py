"""A mixture model of the people of an account: each has tastes, hours, weekdays, and similar sessions.

Item groups, groups that go together and types of people by their hours are learned from all accounts without labels.
For one account, mean field over its sessions runs from several starts and keeps the most likely result, in a fixed
number of array operations.

Shapes: N sessions of one account, K people, B starts, G groups or days, Z kinds of people, M items, F folds.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.assigning import assign, softmax
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.groups import GROUPS, going_together, groups_of_sessions, item_groups
from lightgc2n.people.habits import calendar, hours_by_kind
from lightgc2n.people.pair_evidence import Learned, account_sessions, evidence
from lightgc2n.people.session_features import FOLDS, Sessions
from lightgc2n.people.sessions import Floats, Logs, has_hours

# Dirichlet priors of a group, of a weekday and of a person, close to those of the generated households.
TASTE, WEEKDAYS, ACTIVITY = 0.1, 1.2, 3.5
STARTS, STEPS = 8, 20
COUNT_STARTS = 3
Random = np.random.Generator


@dataclass(frozen=True)
class Account:
    """The sessions of one account, as the mixture sees them."""

    evidence: Floats  # log(p_same / p_other) of each pair [N, N], symmetric, 0 on the diagonal
    size: Longs  # [N] events
    taste: Floats  # [N, G] events of each group
    spread: Floats  # [N, G] the same after smoothing over groups that go together
    weekday: Floats | None  # [N, 7] one-hot weekday; None without times
    hours: Floats | None  # [N, Z] log probability of the hour for each type; None if times have no hours

    @cached_property
    def ratios(self) -> Floats:
        """p_same / p_other of each pair; 0 on the diagonal."""
        return np.exp(self.evidence) - np.eye(len(self.size))


@dataclass(frozen=True)
class Mixture:
    """The parameters learned from all accounts."""

    group: Longs  # [F, M] of each item
    together: Floats  # [F, G, G] which groups go together
    hours: Floats | None  # [Z, 2, 24] log probabilities for each type
    kinds: Floats  # [Z] log probability of each type

    @classmethod
    def learn(cls, training: Logs, learned: Learned, random: Random) -> "Mixture":
        """Learn from training logs and the evidence learned from them; each fold uses the logs of the others."""
        sessions = learned.described(training, learned.fold)
        event = np.repeat(np.arange(len(sessions.owner)), sessions.size)
        group, together = [], []
        for part in range(FOLDS):
            others = learned.fold[training.account] != part
            group.append(
                item_groups(training.account[others], training.items[others], learned.tables.vectors[part], random)
            )
            counts = groups_of_sessions(event, group[-1][sessions.items], len(sessions.owner), GROUPS)
            outside = learned.fold[sessions.owner] != part
            together.append(going_together(counts[outside], sessions.owner[outside]))
        timed = training.times is not None and has_hours(training.times)
        hours, kinds = _hours(sessions, learned, random) if timed else (None, np.zeros(1))
        return cls(np.array(group), np.array(together), hours, kinds)

    def account(self, sessions: Sessions, evidence: Floats, places: Longs, fold: int) -> Account:
        """Return the view of the sessions at these positions; `evidence` is that of their pairs."""
        size, groups = sessions.size[places], self.together.shape[1]
        of_event = np.repeat(np.arange(len(places)), size)
        start = np.repeat(np.cumsum(size) - size, size)  # of the session of each event
        place = np.arange(len(of_event)) - start
        items = sessions.items[np.repeat(sessions.first[places], size) + place]
        taste = groups_of_sessions(of_event, self.group[fold][items], len(places), groups)
        weekday = hours = None
        if sessions.begun is not None:
            hour, weekend, day = calendar(sessions.begun[places])
            weekday = np.eye(7)[day]
            hours = None if self.hours is None else self.hours[:, weekend, hour].T
        return Account(evidence, size, taste, taste @ self.together[fold], weekday, hours)

    def assign(self, account: Account, people: int, random: Random, starts: int = STARTS) -> Floats:
        """Return the probability that each session belongs to each person [N, K]; rows sum to one."""
        number = len(account.size)
        if number <= people:
            return np.eye(people)[:number]  # no more sessions than people: each person has at most one
        belongs: Floats = random.dirichlet(np.ones(people), (starts, number))
        belongs[0] = assign(account.evidence, account.size, people)
        for _ in range(STEPS):
            belongs = self.step(account, belongs)
        sure = np.eye(people)[belongs.argmax(axis=2)]
        activity = log_gamma(sure.sum(axis=1) + ACTIVITY).sum(axis=1)
        return belongs[(self.likelihood(account, sure) + activity).argmax()]

    def count_features(self, account: Account, random: Random) -> Floats:
        """Return the gain in likelihood of each further person, per session [4]."""
        gains = []
        for people in range(1, MOST_PEOPLE + 1):
            belongs = self.assign(account, people, random, COUNT_STARTS)
            sure = np.eye(people)[belongs.argmax(axis=1)][None]
            nobody = np.zeros((1, len(sure[0]), people))
            gains.append(self.likelihood(account, sure)[0] - self.likelihood(account, nobody)[0])
        return np.diff(gains) / len(account.size)

    def step(self, account: Account, belongs: Floats) -> Floats:
        """Update the shares of each session [B, N, K], given those of the others."""
        mass = belongs * np.sqrt(account.size)[:, None]
        score = np.log(belongs.sum(axis=1, keepdims=True) - belongs + ACTIVITY)
        score += np.log((account.ratios @ mass + 1) / (mass.sum(axis=1, keepdims=True) - mass + 1))
        score += counts_score(belongs, account.taste, account.spread, TASTE)
        if account.weekday is not None:
            score += counts_score(belongs, account.weekday, account.weekday, WEEKDAYS)
        if account.hours is not None:
            score += kinds_score(belongs, account.hours, self.kinds)
        return softmax(score)

    def likelihood(self, account: Account, belongs: Floats) -> Floats:
        """Return the log likelihood of tastes, days and hours, up to a constant, for each start [B]."""
        total = counts_total(belongs, account.spread, TASTE)
        if account.weekday is not None:
            total += counts_total(belongs, account.weekday, WEEKDAYS)
        return total if account.hours is None else total + kinds_total(belongs, account.hours, self.kinds)


def _hours(sessions: Sessions, learned: Learned, random: Random) -> tuple[Floats, Floats]:
    """Learn types of people by their hours, from the people that evidence alone yields."""
    assert sessions.begun is not None
    person = np.zeros(len(sessions.owner), dtype=np.int64)
    for account, places in account_sessions(sessions):
        pairs = evidence(sessions, learned.contrast, places)
        person[places] = account * MOST_PEOPLE + assign(pairs, sessions.size[places], MOST_PEOPLE).argmax(axis=1)
    hour, weekend, _ = calendar(sessions.begun)
    return hours_by_kind(person, hour, weekend, random)


def counts_score(belongs: Floats, counts: Floats, spread: Floats, weight: float) -> Floats:
    """Return log p(counts of a session | the person's other sessions) [B, N, K], a Dirichlet multinomial.

    Args:
        counts: of each session [N, G].
        spread: the same after smoothing over groups that go together [N, G].
        weight: the Dirichlet prior of each group.
    """
    row, column = np.nonzero(counts)
    total = np.swapaxes(belongs, 1, 2) @ spread  # [B, K, G]
    own = belongs[:, row] * spread[row, column][:, None]
    rest = np.maximum(np.swapaxes(total[:, :, column], 1, 2) - own, 0) + weight
    terms = log_gamma(rest + counts[row, column][:, None]) - log_gamma(rest)
    gain, first = np.zeros_like(belongs), np.flatnonzero(np.diff(row, prepend=-1))
    if len(row):
        gain[:, row[first]] = np.add.reduceat(terms, first, axis=1)
    size, mass = counts.sum(axis=1)[:, None], spread.sum(axis=1)[:, None]
    rest = np.maximum(total.sum(axis=2)[:, None] - belongs * mass, 0) + weight * counts.shape[1]
    return gain - (log_gamma(rest + size) - log_gamma(rest))


def counts_total(belongs: Floats, spread: Floats, weight: float) -> Floats:
    """Return the log probability of the counts of all people [B], up to a constant."""
    total = np.swapaxes(belongs, 1, 2) @ spread + weight
    return (log_gamma(total).sum(axis=2) - log_gamma(total.sum(axis=2))).sum(axis=1)


def kinds_score(belongs: Floats, hours: Floats, kinds: Floats) -> Floats:
    """Return log p(hour of a session | the person's other hours) [B, N, K], summed over types of people."""
    total = np.swapaxes(belongs, 1, 2) @ hours + kinds  # [B, K, Z]
    kind = softmax(total[:, None] - belongs[..., None] * hours[:, None])
    return np.log((kind * np.exp(hours)[:, None]).sum(axis=3))


def kinds_total(belongs: Floats, hours: Floats, kinds: Floats) -> Floats:
    """Return the log probability of the hours of all people [B]."""
    total = np.swapaxes(belongs, 1, 2) @ hours + kinds
    most = total.max(axis=2)
    return (most + np.log(np.exp(total - most[..., None]).sum(axis=2))).sum(axis=1)


def log_gamma(values: Floats) -> Floats:
    """Return log Γ of positive numbers, by Stirling's series after three recursion steps; exact to 0.0001."""
    above = values + 3
    series = (above - 0.5) * np.log(above) - above + 0.5 * np.log(2 * np.pi) + 1 / (12 * above)
    return series - np.log(values * (values + 1) * (values + 2))
