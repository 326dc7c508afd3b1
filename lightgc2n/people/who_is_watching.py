"""Who is watching now: the chance of each person of an account at a time, and after each item that was begun.

The people and the person of each session come from the finder. The chance of a person k at time t is proportional to

    (share_k + sum over scales c of weight_c * sum over sessions s of r_sk exp(-(t - end_s) / scale_c))
    * hours_k(t)^HOURS_POWER * weekday_k(t)^WEEKDAY_POWER * context_k * items_k

share_k    the share of sessions, smoothed; the sum lets those who were there lately stay, less with a longer pause
hours_k    how often the person's sessions are near this hour, beside the account's, smoothed towards the account
weekday_k  the same for the day of the week
context_k  the same for the device or another hint, where it is known
items_k    how much the person's items are like an item that was begun, beside the account's

The power of items is chosen for each account: the one that best tells the people of its earlier sessions, each session
being left out of what it is compared with. All other numbers are constants, fitted to validation accounts whose people
are known (docs/research/people.md).

Shapes: K people, S sessions, E events, B items begun, W width of an item vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.people.assigning import softmax
from lightgc2n.people.finder import PeopleFinder
from lightgc2n.people.sessions import DAY, HOUR, WEEKEND, Floats, Matrix, clock, has_hours, unit_means

Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class WhoConstants:
    """The constants of the model, fitted to validation accounts."""

    shared: float = 1.4  # sessions that all people share, for smoothing
    scales: tuple[float, ...] = (0.2, 1.0, 5.0, 25.0)  # days
    weights: tuple[float, ...] = (0.09, 0.07, 0.07, 0.12)  # of the sessions of each scale
    hour_width: float = 6.0  # concentration of the kernel on the circle of the day
    hours_apart: float = 0.5  # weight of a session at the weekend for a working day, and the other way round
    hours_prior: float = 5.7  # sessions of the account that count as the person's
    hours_power: float = 2.35
    days_apart: float = 0.3  # weight of a session on another day of the working week, or of the weekend
    days_prior: float = 4.5
    days_power: float = 0.84
    context_prior: float = 2.0
    context_power: float = 1.0
    item_width: float = 8.0  # of the kernel on the cosine of two item vectors
    same_item: float = 0.9  # what the same item counts beside
    items_prior: float = 0.9  # events of the account that count as the person's


CONSTANTS = WhoConstants()
EVERYWHERE = 0.2  # kernel mass that every account has at every hour, weekday and context, so that nothing is impossible
EVERY_ITEM = 0.05
SMOOTHED = 2.0  # sessions of that mass
POWERS = np.arange(0, 2.01, 0.25)  # of items
SURPRISE = 0.02  # share of a session's person that nothing explains, when the power is chosen
NEWEST = 400  # events that items are compared with; the work grows with the square of their number
LEAST = 1e-9


@dataclass(frozen=True)
class Past:
    """The events of an account and whose they probably are, oldest first."""

    items: Ints
    times: Longs | None
    share: Floats  # [E, K] probability of each person
    session: Longs  # [E] session of each event, never falling
    context: Ints | None = None  # [E] such as the device; -1 where unknown

    def before(self, stop: int) -> "Past":
        """Return the first `stop` events."""
        times = None if self.times is None else self.times[:stop]
        context = None if self.context is None else self.context[:stop]
        return Past(self.items[:stop], times, self.share[:stop], self.session[:stop], context)


def item_vectors_of(finder: PeopleFinder, row: int | None) -> Matrix:
    """Return the item vectors that were learned without the account, [M, W].

    Args:
        row: the account's row in the training logs; None for a new account.
    """
    fold = int(finder.learned.fold[row]) if row is not None else 0
    return finder.learned.tables.vectors[fold]


def who_is_watching(
    past: Past,
    at: int | None,
    begun: Ints | Longs | Sequence[int],
    vectors: Matrix,
    context: int | None = None,
    constants: WhoConstants = CONSTANTS,
) -> Floats:
    """Return the chance of each person before anything was begun, and after each item begun, [1 + B, K].

    Args:
        past: the events before the session.
        at: the time of the question in microseconds, not before the newest event; None if the log has no times.
        begun: items of the session so far, in order.
        vectors: of every item of the catalogue.
        context: of the session, as in `past`.
    """
    people = past.share.shape[1]
    items = np.asarray(begun, dtype=np.int64)
    if people == 1 or not len(past.items):
        return np.full((1 + len(items), people), 1 / people)
    score = np.log(_stays(past, at, constants))
    if at is not None and past.times is not None:
        score += _at_this_time(past, at, constants)
    if context is not None and past.context is not None:
        score += _with_context(past, context, constants)
    after = np.cumsum(items_power(past, vectors, constants) * _like(past, items, vectors, constants), axis=0)
    return softmax(score + np.vstack([np.zeros((1, people)), after]))


def _stays(past: Past, at: int | None, constants: WhoConstants) -> Floats:
    """Return who acts, by shares and by who was there lately [K]."""
    share = unit_means(past.share, past.session)
    people = share.shape[1]
    acts = share.sum(axis=0) + constants.shared / people
    acts = acts / acts.sum()
    if at is not None and past.times is not None:
        ends = past.times[np.flatnonzero(np.diff(past.session, append=-1))]
        ago = np.maximum(at - ends, 0) / DAY
        for scale, weight in zip(constants.scales, constants.weights, strict=True):
            acts = acts + weight * (np.exp(-ago / scale) @ share)
    return np.maximum(acts, LEAST)


def _at_this_time(past: Past, at: int, constants: WhoConstants) -> Floats:
    """Return the logarithm of what the hour and the day of the week say of each person [K]."""
    assert past.times is not None
    share = unit_means(past.share, past.session)
    begun = past.times[np.flatnonzero(np.diff(past.session, prepend=-1))]
    days, _ = clock(begun)
    day = int(clock(np.array([at]))[0][0])
    alike = (days >= WEEKEND) == (day >= WEEKEND)
    near = np.where(days == day, 1.0, np.where(alike, constants.days_apart, 0.0))
    told = constants.days_power * _log_ratio(near, share, constants.days_prior)
    if has_hours(past.times):
        angle = 2 * np.pi * ((begun - at) % DAY) / (24 * HOUR)
        near = np.exp(constants.hour_width * (np.cos(angle) - 1)) * np.where(alike, 1.0, constants.hours_apart)
        told += constants.hours_power * _log_ratio(near, share, constants.hours_prior)
    return told


def _with_context(past: Past, context: int, constants: WhoConstants) -> Floats:
    """Return the logarithm of what the device or another hint says of each person [K]."""
    assert past.context is not None
    known = past.context >= 0
    if not known.any():
        return np.zeros(past.share.shape[1])
    unit = np.cumsum(np.diff(past.session[known], prepend=-1) != 0) - 1
    share = unit_means(past.share[known], unit)
    near = unit_means((past.context[known] == context)[:, None].astype(np.float64), unit)[:, 0]
    return constants.context_power * _log_ratio(near, share, constants.context_prior)


def _log_ratio(near: Floats, share: Floats, prior: float) -> Floats:
    """Return log(mean nearness of the person's sessions / of the account's), smoothed towards the account [K].

    Args:
        near: nearness of each session to the question [S].
        share: [S, K].
    """
    whole = (near.sum() + SMOOTHED * EVERYWHERE) / (len(near) + SMOOTHED)
    return np.log((near @ share + prior * whole) / (share.sum(axis=0) + prior) / whole)


def _like(past: Past, items: Longs, vectors: Matrix, constants: WhoConstants) -> Floats:
    """Return log(likeness of each item to the person's events / to the account's), smoothed [B, K]."""
    held, share = past.items[-NEWEST:], past.share[-NEWEST:]
    near = _likeness(items, held, vectors, constants)
    return _log_likeness(near @ share, share.sum(axis=0), constants)


def _likeness(one: Ints | Longs, other: Ints, vectors: Matrix, constants: WhoConstants) -> Floats:
    cosine = vectors[one].astype(np.float64) @ vectors[other].astype(np.float64).T
    return np.exp(constants.item_width * (cosine - 1)) + constants.same_item * (one[:, None] == other)


def _log_likeness(near: Floats, events: Floats, constants: WhoConstants) -> Floats:
    """Args: near: sums of likeness over each person's events [N, K]; events: their number [K] or [N, K]."""
    whole = (near.sum(axis=-1) + EVERY_ITEM) / (events.sum(axis=-1) + 1)
    whole = whole[..., None]
    prior = constants.items_prior
    return np.log((near + prior * whole) / (events + prior) / whole)


def items_power(past: Past, vectors: Matrix, constants: WhoConstants = CONSTANTS) -> float:
    """Return how much items say of who is there: the power that best tells whose the earlier sessions were.

    Each session is compared with the others alone. Where items tell nothing, the power is 0.
    """
    held, share, session = past.items[-NEWEST:], past.share[-NEWEST:], past.session[-NEWEST:]
    begins = np.flatnonzero(np.diff(session, prepend=-1))
    unit = np.cumsum(np.diff(session, prepend=session[:1]) != 0)
    near = _likeness(held[begins], held, vectors, constants)
    near[unit[begins][:, None] == unit] = 0
    own = np.add.reduceat(share, begins, axis=0)
    events = share.sum(axis=0) - own
    told = _log_likeness(near @ share, events, constants)
    before = (events + 0.5) / (events + 0.5).sum(axis=1, keepdims=True)
    person = share[begins]
    explained = []
    for power in POWERS:
        chance = softmax(np.log(before) + power * told)
        explained.append(float((person * np.log((1 - SURPRISE) * chance + SURPRISE * before)).sum()) - power)
    return float(POWERS[int(np.argmax(explained))])
