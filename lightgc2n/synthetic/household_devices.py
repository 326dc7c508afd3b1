"""Draw the device of each sitting: every person prefers some of the household's devices.

Devices are drawn from a random stream of their own, so the log of a world is the same with and without devices.
"""

import numpy as np

from lightgc2n.data.dataset import Ints
from lightgc2n.synthetic.household_viewing import HOUR, Viewing
from lightgc2n.synthetic.household_world import HouseholdConfig, People

DEVICES = ("tv", "tablet", "phone", "laptop", "console")
HABIT = 0.6  # Dirichlet weight of each device for a person; below 1, most people prefer one or two
STREAM = 1  # number of this random stream; households use others


def draw_devices(config: HouseholdConfig, people: People, viewing: Viewing, seed: int, chunk: int) -> Ints:
    """Return the device of each event, an index into DEVICES; all events of a sitting have the same one."""
    random = np.random.default_rng([seed, 1 + chunk, STREAM])
    habits = random.dirichlet(np.full(config.devices, HABIT), len(people.home))
    begins = np.ones(len(viewing.time), dtype=bool)
    begins[1:] = (np.diff(viewing.person) != 0) | (np.diff(viewing.time) > HOUR)
    sitting = np.cumsum(begins) - 1
    chances = np.cumsum(habits[viewing.person[begins]], axis=1)[:, :-1]
    return (chances < random.random((len(chances), 1))).sum(axis=1).astype(np.int32)[sitting]
