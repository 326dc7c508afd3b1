"""Group items by the accounts that hold them, and learn which categories one person combines, from training logs.

Shapes: M items, E items that accounts hold, S sessions, G groups or other categories, W width of a vector.
"""

import numpy as np

from lightgc2n.data.dataset import Ints, Longs
from lightgc2n.people.assigning import softmax
from lightgc2n.people.pair_evidence import SHARE
from lightgc2n.people.sessions import Floats, Matrix

GROUPS = 20
CENTRE_STEPS, TOPIC_STEPS = 20, 15
ACCOUNT_WEIGHT, ITEM_WEIGHT = 0.1, 0.01  # Dirichlet priors: of a group in an account, of an item in a group
SHARPNESS = 8.0  # of the initial groups: cosine 1 outweighs cosine 0 by e⁸
NEAR, ALONE = 1e-9, 1e-9  # smallest weight of a start near another one, and of a category that goes with none
Random = np.random.Generator


def sums_at(at: Longs, rows: Floats, number: int) -> Floats:
    """Return for each of `number` rows the sum of the input rows assigned to it."""
    order = np.argsort(at, kind="stable")
    start = np.flatnonzero(np.diff(at[order], prepend=-1))
    sums = np.zeros((number, rows.shape[1]), dtype=rows.dtype)
    if len(at):
        sums[at[order][start]] = np.add.reduceat(rows[order], start)
    return sums


def sphere_centres(vectors: Matrix, weight: Floats, number: int, random: Random) -> Floats:
    """Run spherical k-means and return the mean direction of each cluster; starts are drawn far from each other."""
    chosen = vectors[[random.choice(len(vectors), p=weight / weight.sum())]]
    for _ in range(number - 1):
        far = np.maximum(1 - (vectors @ chosen.T).max(axis=1), 0) * weight + NEAR
        chosen = np.vstack([chosen, vectors[random.choice(len(vectors), p=far / far.sum())]])
    for _ in range(CENTRE_STEPS):
        total = sums_at((vectors @ chosen.T).argmax(axis=1), vectors * weight[:, None], number)
        chosen = total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-9)
    return chosen


def item_groups(
    account: Ints | Longs, item: Ints | Longs, vectors: Matrix, random: Random, groups: int = GROUPS
) -> Longs:
    """Return the group of each item, `groups` if no account holds it: a topic model that starts from k-means.

    Args:
        account: of each training event.
        item: of each training event.
        vectors: of all items, of length one or zero.
    """
    held = np.unique(account.astype(np.int64) * len(vectors) + item)
    owner, items = held // len(vectors), held % len(vectors)
    holders = np.bincount(items, minlength=len(vectors))
    known = np.flatnonzero((holders > 0) & (np.abs(vectors).sum(axis=1) > 0))
    if not len(known):
        return np.where(holders > 0, 0, groups)
    middle = sphere_centres(vectors[known], np.sqrt(holders[known]), groups, random)
    topic = softmax(SHARPNESS * (vectors @ middle.T))[items].astype(np.float32)
    for _ in range(TOPIC_STEPS):
        topic = topic_step(topic, owner, items, len(vectors))
    return np.where(holders > 0, sums_at(items, topic, len(vectors)).argmax(axis=1), groups)


def topic_step(topic: Floats, account: Longs, item: Longs, items: int) -> Floats:
    """Update the topics of each (account, item) pair [E, G] given all others (CVB0)."""
    of_items = sums_at(item, topic, items)
    of_account = sums_at(account, topic, int(account.max()) + 1)[account] - topic + ACCOUNT_WEIGHT
    of_item = (of_items[item] - topic + ITEM_WEIGHT) / (of_items.sum(axis=0) - topic + ITEM_WEIGHT * items)
    likely = np.maximum(of_account * of_item, 1e-12)
    return likely / likely.sum(axis=1, keepdims=True)


def going_together(counts: Floats, owner: Longs) -> Floats:
    """Return for each category of a session those of another session of the same person [G, G]; rows sum to one.

    Estimated by contrast with strangers, as in `pair_evidence.py`: two sessions of one account are one person's with
    probability SHARE, otherwise they match by chance. Only categories that meet more often than by chance go together.

    Args:
        counts: of the categories of each session [S, G].
        owner: the account of each session.
    """
    filled = counts.sum(axis=1) > 0
    if not filled.any():
        return np.eye(counts.shape[1])
    share, owner = counts[filled] / counts[filled].sum(axis=1, keepdims=True), owner[filled]
    others = np.maximum(np.bincount(owner) - 1, 1)[:, None]
    accounts = sums_at(owner, share, len(others))
    pairs = (accounts / others).T @ accounts - (share / others[owner]).T @ share  # exclude a session paired with itself
    pairs /= np.maximum(pairs.sum(axis=1, keepdims=True), 1e-9)
    chance = share.mean(axis=0)
    same = (pairs - (1 - SHARE) * chance) / SHARE
    above = np.maximum(same - chance, 0) + ALONE * np.eye(len(chance))
    return above / above.sum(axis=1, keepdims=True)
