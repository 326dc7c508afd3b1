"""Assign each event to the latent user with the largest share."""

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.people.session_points import Logs

Shares = npt.NDArray[np.float32]


def strongest(shares: Shares, logs: Logs, count: Longs | None) -> Longs:
    """Return for each event the latent user with the largest share.

    Args:
        shares: of each latent user in each event, [E, K].
        count: the number of people of each account, if given; only its `count` strongest latent users are then used.
    """
    if count is None:
        return shares.argmax(axis=1)
    total = np.zeros((logs.accounts, shares.shape[1]))
    np.add.at(total, logs.account, shares)
    place = np.argsort(np.argsort(-total, axis=1, kind="stable"), axis=1)
    return np.where((place < count[:, None])[logs.account], shares, -np.inf).argmax(axis=1)
