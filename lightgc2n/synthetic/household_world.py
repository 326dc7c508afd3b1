"""The world of generated households: its settings, its two catalogues, and its people.

Shapes: P people, U units (a single title or a whole series), M items, G genres of one domain, R roles.
Genres and units are numbered across domains, as items are: first video, then learn.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightgc2n.config import setting
from lightgc2n.data.dataset import Domain, Ints, Longs
from lightgc2n.errors import SettingError

Floats = npt.NDArray[np.float64]

DOMAINS = ("video", "learn")
GENRES = 16
HEAD, HEAD_SHARE = 4, 0.01  # flat head of Zipf's law: this many titles plus this share are about equally popular
HOUSEHOLD_SIZES = np.array([0.28, 0.34, 0.18, 0.14, 0.06])  # shares of homes with 1 to 5 people
EPISODES = (4, 24)  # of one series, fewest and most
SERIES_DRAW = 3.0
# A role is a stage of life: its usual hour on workdays and weekends, and its share of the population.
ROLE_HOURS = np.array([[16.5, 9.0], [18.0, 22.5], [21.0, 20.0], [12.5, 15.0], [9.0, 11.5], [23.0, 17.5]])
SPREAD_WITHIN_ROLE = 1.5  # hours
ROLE_SHARES = np.array([0.18, 0.16, 0.24, 0.12, 0.16, 0.14])
DAYS_OF_THE_TOWN = np.array([1.0, 1, 1, 1, 1.3, 1.6, 1.6])  # Dirichlet weights, Monday first; smaller: more variation
WEEKEND = 5  # Saturday and the day after it, counted from Monday as 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HouseholdConfig:
    """Settings of a generated world; the defaults resemble the logs of a smart-TV service."""

    accounts: int = setting(1000, at_least=50, at_most=1_000_000, help="Households, each with one account.")
    video_items: int = setting(3000, at_least=200, at_most=1_000_000, help="Items of the domain video.")
    learn_items: int = setting(1000, at_least=200, at_most=1_000_000, help="Items of the domain learn.")
    smallest_household: int = setting(1, at_least=1, at_most=5, help="Fewest people behind one account.")
    largest_household: int = setting(5, at_least=1, at_most=5, help="Most people behind one account.")
    events_per_account: float = setting(38.0, at_least=10, at_most=2000, help="Mean events of an account.")
    weeks: int = setting(12, at_least=1, at_most=520, help="Length of the log in weeks; it starts on a Monday.")
    session_events: float = setting(1.9, at_least=1, at_most=50, help="Mean events of one session.")
    popularity: float = setting(1.8, at_least=0, at_most=2, help="Exponent of Zipf's law for titles and series.")
    taste_sharpness: float = setting(
        14.0,
        at_least=0.01,
        at_most=100,
        help="How focused one person's taste is: 0.01 equals the average of the role, 100 is a single genre.",
    )
    taste_transfer: float = setting(
        0.9, at_least=0, at_most=1, help="Share of a person's taste that is the same in both domains."
    )
    habit: float = setting(
        0.7, at_least=0, at_most=1, help="Share of sessions at a person's own hours instead of the common evening."
    )
    rewatching: float = setting(0.25, at_least=0, at_most=0.9, help="Probability that an event repeats a seen item.")
    series: float = setting(0.5, at_least=0, at_most=0.9, help="Share of items that are episodes of series.")
    binge: float = setting(0.33, at_least=0, at_most=1, help="Probability of watching the next episode of a series.")
    guests: float = setting(0.03, at_least=0, at_most=0.5, help="Share of sessions of guests.")
    co_viewing: float = setting(0.08, at_least=0, at_most=1, help="Share of sessions in which a second person joins.")
    devices: int = setting(
        0, at_least=0, at_most=5, help="Devices of a household, which people prefer differently; 0: no such column."
    )


@dataclass(frozen=True)
class World:
    """Everything that all households share."""

    domains: tuple[Domain, ...]
    unit_first: Ints  # [U] first item of each unit; the episodes of a series follow in order
    unit_length: Ints  # [U]
    unit_genre: Ints  # [U]
    unit_weight: Floats  # [U] probability of the unit within its genre
    unit_of_item: Ints  # [M]
    role_taste: Floats  # [2, R, G] what people of a role watch on average, in each domain

    def item_ids(self) -> list[str]:
        """Return the id of each item, such as v00042."""
        return [f"{domain.name[0]}{number:05d}" for domain in self.domains for number in range(len(domain))]


@dataclass(frozen=True)
class People:
    """The people of some households, by home; the last one of each home is its guest."""

    home: Ints  # [P]
    number: Ints  # [P] 1, 2, ... in the home; 0 is the guest
    activity: Floats  # [P] share of the home's sittings
    taste: Floats  # [2, P, G]
    hours: Floats  # [P, 2] usual hour on working days and at the weekend
    weekdays: Floats  # [P, 7] probability of each day, Monday first


def build_world(config: HouseholdConfig, seed: int) -> World:
    """Build the catalogues and roles of a seed; they do not depend on the number of accounts."""
    _check(config, seed)
    random = np.random.default_rng([seed, 0])
    sizes = [config.video_items, config.learn_items]
    length = [_unit_lengths(random, items, config.series) for items in sizes]
    genre_share = random.dirichlet(np.full(GENRES, 8.0), len(DOMAINS))
    genre = [_unit_genres(random, len(units), genre_share[d]) + d * GENRES for d, units in enumerate(length)]
    weight = [_zipf_weights(random, len(units), config.popularity) * _draw_of_series(units) for units in length]
    lengths, genres = np.concatenate(length), np.concatenate(genre)
    stops = np.cumsum(sizes).tolist()
    return World(
        domains=tuple(Domain(*facts) for facts in zip(DOMAINS, [0, *stops], stops, strict=False)),
        unit_first=(np.cumsum(lengths) - lengths).astype(np.int32),
        unit_length=lengths.astype(np.int32),
        unit_genre=genres.astype(np.int32),
        unit_weight=_shares_within(genres, np.concatenate(weight)),
        unit_of_item=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        role_taste=_role_tastes(random, genre_share, config.taste_transfer),
    )


def draw_people(config: HouseholdConfig, world: World, homes: int, random: np.random.Generator) -> People:
    """Draw the people of `homes` households and one occasional guest of each."""
    sizes = np.arange(config.smallest_household, config.largest_household + 1)
    shares = HOUSEHOLD_SIZES[sizes - 1]
    residents = random.choice(sizes, size=homes, p=shares / shares.sum())
    home = np.repeat(np.arange(homes), residents + 1)
    last = np.cumsum(residents + 1) - 1
    number = np.arange(len(home)) - (last - residents)[home] + 1
    number[last] = 0
    role = random.choice(len(ROLE_SHARES), size=len(home), p=ROLE_SHARES)
    return People(
        home=home.astype(np.int32),
        number=number.astype(np.int32),
        activity=_activities(random, home, last, config.guests),
        taste=_tastes(config, world.role_taste[:, role], random),
        hours=(ROLE_HOURS[role] + random.normal(0, SPREAD_WITHIN_ROLE, (len(home), 2))) % 24,
        weekdays=_dirichlet(np.tile(DAYS_OF_THE_TOWN, (len(home), 1)), random),
    )


def _check(config: HouseholdConfig, seed: int) -> None:
    """Raise an error for settings that are invalid in combination."""
    if config.smallest_household > config.largest_household:
        raise SettingError(
            f"smallest_household must be at most largest_household ({config.largest_household}), "
            f"found {config.smallest_household}."
        )
    if seed < 0:
        raise SettingError(f"seed must be at least 0, found {seed}.")


def _activities(random: np.random.Generator, home: Longs, guest: Longs, guests: float) -> Floats:
    """Draw each person's share of the home's sittings; they sum to one per home."""
    activity = random.gamma(3.0, size=len(home)) + 0.5
    activity[guest] = 0
    activity *= (1 - guests) / np.bincount(home, activity)[home]
    activity[guest] = guests
    return activity


def _unit_lengths(random: np.random.Generator, items: int, series: float) -> Longs:
    """Draw lengths of titles (1) and series that sum to `items`."""
    episodes = random.integers(EPISODES[0], EPISODES[1] + 1, items)
    mean = sum(EPISODES) / 2
    # `series` is a share of items; the share of units is smaller, because a series has many items.
    chance = series / (series + (1 - series) * mean)
    stop = np.cumsum(np.where(random.random(items) < chance, episodes, 1)).clip(max=items)
    lengths = np.diff(stop, prepend=0)
    return lengths[lengths > 0]


def _unit_genres(random: np.random.Generator, units: int, share: Floats) -> Longs:
    genres = random.choice(GENRES, size=units, p=share)
    # Give each genre at least one unit, because an empty genre could not be drawn from.
    genres[random.permutation(units)[:GENRES]] = np.arange(GENRES)
    return genres


def _zipf_weights(random: np.random.Generator, units: int, exponent: float) -> Floats:
    # Zipf's law with Mandelbrot's shift; without it a few hits would dominate.
    ranks = 1.0 + random.permutation(units)
    return np.asarray((HEAD + HEAD_SHARE * units + ranks) ** -exponent, dtype=np.float64)


def _draw_of_series(length: Longs) -> Floats:
    # A series is promoted for weeks, so more people start it than watch a title of equal rank.
    return np.where(length > 1, SERIES_DRAW, 1.0)


def _shares_within(groups: Longs, weights: Floats) -> Floats:
    """Scale the weights to sum to one within each group."""
    return weights / np.bincount(groups, weights)[groups]


def _role_tastes(random: np.random.Generator, genre_share: Floats, transfer: float) -> Floats:
    """Draw the taste of each role; `transfer` is the part shared by both domains."""
    common = random.gamma(1.0, size=(len(ROLE_SHARES), GENRES))
    own = random.gamma(1.0, size=(len(DOMAINS), len(ROLE_SHARES), GENRES))
    tastes = (transfer * common + (1 - transfer) * own + 0.05) * genre_share[:, None]
    return tastes / tastes.sum(axis=-1, keepdims=True)


def _tastes(config: HouseholdConfig, average: Floats, random: np.random.Generator) -> Floats:
    """Draw a personal taste around the average of the role, for each domain and person."""
    concentration = average * GENRES / config.taste_sharpness
    video, learn = _dirichlet(concentration[0], random), _dirichlet(concentration[1], random)
    # Genres of equal number have the same subject, so a fan of one likes the other.
    learn = config.taste_transfer * video + (1 - config.taste_transfer) * learn
    return np.stack([video, learn])


def _dirichlet(concentration: Floats, random: np.random.Generator) -> Floats:
    draws = random.standard_gamma(concentration) + 1e-9
    return draws / draws.sum(axis=-1, keepdims=True)
