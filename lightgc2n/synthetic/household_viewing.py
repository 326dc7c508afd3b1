"""Simulate what the members of some households watch: first the times, then the items.

Shapes: H homes, P people, S sittings, E events. A line is everything one person watches in one domain, in order.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.synthetic.household_world import DOMAINS, GENRES, WEEKEND, Floats, HouseholdConfig, People, World

DAY, HOUR = 86_400, 3_600
FIRST_DAY = 1_704_067_200  # Monday, 1 January 2024, in UTC
SPREAD_OF_HABIT, COMMON_EVENING, SPREAD_OF_EVENING = 2.0, 20.5, 2.0  # hours
MEAN_PAUSE, LONGEST_PAUSE = 1_200, 3_000  # seconds between events of one sitting, always less than an hour
FEWEST_EVENTS = 5
CHOICES = 4  # candidate units for one event
MORE_TURNS, CHANCE_OF_TURN = 3, 0.4  # further switches of domain in a home, and the probability of each


@dataclass(frozen=True)
class Viewing:
    """Events of some households, ordered by home and time."""

    home: Ints  # [E]
    person: Ints  # [E] who chose the item; an index into the People
    domain: npt.NDArray[np.uint8]  # [E]
    time: Longs  # [E] seconds since 1970
    item: Ints  # [E]


@dataclass(frozen=True)
class _Slots:
    """Events without items: home, person, domain and time."""

    home: Longs
    person: Longs
    joined_by: Longs  # a second person, or the same one
    domain: Longs
    time: Longs


def watch(config: HouseholdConfig, world: World, people: People, random: np.random.Generator) -> Viewing:
    """Simulate everything `people` watch during the log."""
    slots = _in_order(_draw_slots(config, people, random))
    return Viewing(
        home=slots.home.astype(np.int32),
        person=slots.person.astype(np.int32),
        domain=slots.domain.astype(np.uint8),
        time=slots.time,
        item=_choose_items(config, world, people, slots, random),
    )


def _draw_slots(config: HouseholdConfig, people: People, random: np.random.Generator) -> _Slots:
    """Draw the sittings of all homes, event by event."""
    home, length = _draw_sittings(config, int(people.home[-1]) + 1, random)
    person = _pick_person(people, home, random)
    start = _draw_starts(config, people, person, random)
    order = np.lexsort((start, home))
    home, person, start, length = home[order], person[order], start[order], length[order]
    joins = random.random(len(home)) < config.co_viewing
    joined_by = np.where(joins, _pick_person(people, home, random), person)
    domain = _draw_domains(home, length, random)
    sitting = np.repeat(np.arange(len(home)), length)
    return _Slots(
        home[sitting], person[sitting], joined_by[sitting], domain[sitting], _event_times(start, length, random)
    )


def _draw_sittings(config: HouseholdConfig, homes: int, random: np.random.Generator) -> tuple[Longs, Longs]:
    """Draw the home and the number of events of each sitting."""
    more = config.events_per_account - FEWEST_EVENTS
    events = FEWEST_EVENTS + random.poisson(random.gamma(25.0, more / 25.0, homes))
    home = np.repeat(np.arange(homes), events)
    begins = random.random(len(home)) < 1 / config.session_events
    begins[np.cumsum(events) - events] = True
    first = np.flatnonzero(begins)
    return home[first], np.diff(first, append=len(home))


def _pick_person(people: People, home: Longs, random: np.random.Generator) -> Longs:
    """Draw a member of the home for each sitting, in proportion to activity."""
    return _pick_within(people.activity, people.home, home, random)


def _pick_within(weights: Floats, groups: Ints, wanted: Longs, random: np.random.Generator) -> Longs:
    """Draw an entry of each wanted group; groups are sorted, and the weights of each sum to one."""
    # Group g therefore covers the cumulative sum from g to g + 1.
    entry = np.searchsorted(np.cumsum(weights), wanted + random.random(len(wanted)), side="right")
    starts = np.searchsorted(groups, np.arange(int(groups[-1]) + 2))
    # The cumulative sum is inexact, so a draw at the edge could fall into the next group.
    return entry.clip(starts[wanted], starts[wanted + 1] - 1)


def _draw_starts(config: HouseholdConfig, people: People, person: Longs, random: np.random.Generator) -> Longs:
    """Draw the start of each sitting from the habits of the person."""
    weekday = (np.cumsum(people.weekdays, axis=1)[person, :-1] < random.random((len(person), 1))).sum(axis=1)
    usual = people.hours[person, (weekday >= WEEKEND).astype(np.int64)]
    own = random.random(len(person)) < config.habit
    centre = np.where(own, usual, COMMON_EVENING)
    hour = centre + random.normal(size=len(person)) * np.where(own, SPREAD_OF_HABIT, SPREAD_OF_EVENING)
    day = 7 * random.integers(0, config.weeks, len(person)) + weekday
    return (FIRST_DAY + day * DAY + (hour % 24) * HOUR).astype(np.int64)


def _draw_domains(home: Longs, length: Longs, random: np.random.Generator) -> Longs:
    """Draw the domain of each sitting: a home stays in one for a while, and visits both."""
    homes = int(home[-1]) + 1
    done = np.cumsum(length) - length / 2
    total = np.bincount(home, length)
    share = (done - (np.cumsum(total) - total)[home]) / total[home]
    turns = random.random((homes, 1 + MORE_TURNS))
    turns[:, 0] = random.beta(7.0, 7.0, homes)  # near the middle, so that both domains get enough events
    turns[:, 1:][random.random((homes, MORE_TURNS)) > CHANCE_OF_TURN] = 1.0
    first = random.integers(0, len(DOMAINS), homes)
    domain = (first[home] + (share[:, None] > turns[home]).sum(axis=1)) % len(DOMAINS)
    # Switches between the same two sittings can cancel; the later half then gets the other domain.
    learning = np.bincount(home, domain)
    stuck = (learning == 0) | (learning == np.bincount(home))
    return np.where(stuck[home] & (share > 0.5), 1 - domain, domain)


def _event_times(start: Longs, length: Longs, random: np.random.Generator) -> Longs:
    pause = random.exponential(MEAN_PAUSE, int(length.sum())).clip(60, LONGEST_PAUSE).astype(np.int64)
    first = np.cumsum(length) - length
    pause[first] = 0
    passed = np.cumsum(pause)
    return np.repeat(start - passed[first], length) + passed


def _in_order(slots: _Slots) -> _Slots:
    """Sort the slots by home and time; make times unique within a home."""
    order = np.lexsort((slots.time, slots.home))
    home, time = slots.home[order], slots.time[order]
    # Shift equal times apart, so that sorting by time never swaps two events.
    position = np.arange(len(time))
    far = home * (int(time.max()) + len(time))
    time = np.maximum.accumulate(time + far - position) - far + position
    return _Slots(home, slots.person[order], slots.joined_by[order], slots.domain[order], time)


def _choose_items(
    config: HouseholdConfig, world: World, people: People, slots: _Slots, random: np.random.Generator
) -> Ints:
    """Choose the item of each slot: a repeat, the next episode of a series, or a new item."""
    line = slots.person * len(DOMAINS) + slots.domain
    order = np.argsort(line, kind="stable")
    # Draw several candidates, because the first may have been watched already.
    units = np.stack([_fresh_units(world, people, slots, random)[order] for _ in range(CHOICES)])
    whim = random.random(len(order))
    # How far repeats reach back, fitted to real logs: mostly near, sometimes very far.
    reach = (5 * random.pareto(1.2, len(order))).clip(max=10_000).astype(np.int64)
    items = np.empty(len(order), dtype=np.int32)
    items[order] = _follow_lines(config, world, line[order], units, whim, reach)
    return items


def _fresh_units(world: World, people: People, slots: _Slots, random: np.random.Generator) -> Longs:
    """Draw the unit of each slot, ignoring what was watched before."""
    # Two people who watch together alternate in choosing.
    wish = np.where(random.random(len(slots.home)) < 0.5, slots.person, slots.joined_by)
    taste = np.cumsum(people.taste, axis=2)[slots.domain, wish, :-1]
    genre = slots.domain * GENRES + (taste < random.random((len(wish), 1))).sum(axis=1)
    by_genre = np.argsort(world.unit_genre, kind="stable")
    return by_genre[_pick_within(world.unit_weight[by_genre], world.unit_genre[by_genre], genre, random)]


def _follow_lines(
    config: HouseholdConfig, world: World, line: Longs, units: Longs, whim: Floats, reach: Longs
) -> Longs:
    """Return the items of all lines, computed one step of every line at a time."""
    first = np.flatnonzero(np.diff(line, prepend=-1))
    length = np.diff(first, append=len(line))
    longest_first = np.argsort(-length, kind="stable")
    first, length = first[longest_first], length[longest_first]
    items = np.zeros(len(line), dtype=np.int64)
    followed = np.full(len(first), -1, dtype=np.int64)  # latest episode of the series each line follows
    last_item = (world.unit_first + world.unit_length - 1)[world.unit_of_item]
    for step in range(int(length[0])):
        # Finished lines come after those that continue.
        here = first[: np.searchsorted(-length, -step)] + step
        series = followed[: len(here)]
        # A reach beyond the first event wraps around.
        again = here - min(step, 2) - reach[here] % max(step - 1, 1)
        back = (whim[here] < config.rewatching) & (step > 1) & (items[again] != items[here - (step > 0)])
        goes_on = ~back & (series >= 0) & (whim[here] < config.rewatching + config.binge)
        goes_on &= series < last_item[series]
        fresh = np.flatnonzero(~back & ~goes_on)
        items[here] = np.where(back, items[again], series + 1)
        items[here[fresh]] = _fresh_items(world, items, here[fresh], step, units[:, here[fresh]])
        is_series = world.unit_length[world.unit_of_item[items[here]]] > 1
        series[:] = np.where(~back & is_series, items[here], series)
    return items


def _fresh_items(world: World, items: Longs, here: Longs, step: int, units: Longs) -> Longs:
    """Return for each line the first unseen item of its candidates, in order."""
    seen = items[here[:, None] - 1 - np.arange(step)]
    chosen = np.zeros(len(here), dtype=np.int64)
    for rank, unit in reversed(list(enumerate(units))):
        first, length = world.unit_first[unit].astype(np.int64), world.unit_length[unit]
        place = seen - first[:, None]
        place[place >= length[:, None]] = -1
        reached = place.max(axis=1, initial=-1) + 1
        # Take the last candidate even if all of its items are seen.
        is_new = (reached < length) | (rank == len(units) - 1)
        chosen = np.where(is_new, first + reached % length, chosen)
    return chosen
