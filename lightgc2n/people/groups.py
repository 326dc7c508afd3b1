"""Groups of items by what accounts hold together, and which groups are one person's, from training logs alone.

Shapes: M items, E items that accounts hold, S sessions, A accounts, G groups, W width of a vector.
"""

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.contrast import SHARE
from lightgc2n.people.session_points import Floats, Matrix

GROUPS = 20
CENTRE_STEPS, TOPIC_STEPS = 20, 60
ACCOUNT_WEIGHT, ITEM_WEIGHT = 0.1, 0.01  # of a group in an account, of an item in a group, before anything is seen
SHARPNESS = 8.0  # of the first groups: a cosine of 1 beats one of 0 by e⁸
COMMON = 2.0  # times chance that two groups must meet in one person to go together
NEAR, ALONE = 1e-9, 1e-9  # what is left to a start that is near another, and to a group that goes with none
Random = np.random.Generator


def softmax(scores: Floats) -> Floats:
    """Shares along the last axis."""
    likely = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return likely / likely.sum(axis=-1, keepdims=True)


def sums_at(at: Longs, rows: Floats, number: int) -> Floats:
    """For each of 0 to `number` the sum of the rows that are its own."""
    order = np.argsort(at, kind="stable")
    start = np.flatnonzero(np.diff(at[order], prepend=-1))
    found = np.zeros((number, rows.shape[1]), dtype=rows.dtype)
    if len(at):
        found[at[order][start]] = np.add.reduceat(rows[order], start)
    return found


def sphere_centres(vectors: Matrix, weight: Floats, number: int, random: Random) -> Floats:
    """k-means of vectors of length one: the mean direction of each group. Each next start is drawn far from all."""
    chosen = vectors[[random.choice(len(vectors), p=weight / weight.sum())]]
    for _ in range(number - 1):
        far = np.maximum(1 - (vectors @ chosen.T).max(axis=1), 0) * weight + NEAR
        chosen = np.vstack([chosen, vectors[random.choice(len(vectors), p=far / far.sum())]])
    for _ in range(CENTRE_STEPS):
        total = sums_at((vectors @ chosen.T).argmax(axis=1), vectors * weight[:, None], number)
        chosen = total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-9)
    return chosen


def item_groups(account: Longs, item: Longs, vectors: Matrix, random: Random, groups: int = GROUPS) -> Longs:
    """The group of each item, -1 for one that nobody holds: topics of accounts, begun from k-means of the vectors.

    Args:
        account: of each training event whose it is.
        item: of each training event what it is.
        vectors: of all items, of length one or zero.
    """
    held = np.unique(account.astype(np.int64) * len(vectors) + item)
    account, item = held // len(vectors), held % len(vectors)
    holders = np.bincount(item, minlength=len(vectors))
    known = np.flatnonzero((holders > 0) & (np.abs(vectors).sum(axis=1) > 0))
    if not len(known):
        return np.where(holders > 0, 0, -1)
    middle = sphere_centres(vectors[known], np.sqrt(holders[known]), groups, random)
    topic = softmax(SHARPNESS * (vectors @ middle.T))[item].astype(np.float32)
    for _ in range(TOPIC_STEPS):
        topic = topic_step(topic, account, item, len(vectors))
    return np.where(holders > 0, sums_at(item, topic, len(vectors)).argmax(axis=1), -1)


def topic_step(topic: Floats, account: Longs, item: Longs, items: int) -> Floats:
    """The groups of each holding [E, G] by those of all others: of the account, and of the item (CVB0)."""
    of_items = sums_at(item, topic, items)
    of_account = sums_at(account, topic, int(account.max()) + 1)[account] - topic + ACCOUNT_WEIGHT
    of_item = (of_items[item] - topic + ITEM_WEIGHT) / (of_items.sum(axis=0) - topic + ITEM_WEIGHT * items)
    likely = np.maximum(of_account * of_item, 1e-12)
    return likely / likely.sum(axis=1, keepdims=True)


def groups_of_sessions(session: Longs, group: Longs, sessions: int, groups: int) -> Floats:
    """How many events of each session are of each group [S, G]; an item of no group counts for nothing."""
    known = group >= 0
    cells = np.bincount(session[known] * groups + group[known], minlength=sessions * groups)
    return cells.reshape(sessions, groups).astype(np.float64)


def going_together(counts: Floats, owner: Longs) -> Floats:
    """Which groups another session of the same person has, for each group of a session [G, G]; rows sum to one.

    By contrast with strangers, as in `contrast.py`: two sessions of one account are one person's with chance SHARE, and
    else meet by chance. Only what meets clearly oftener than by chance goes together.

    Args:
        counts: of the groups of each session [S, G].
        owner: the account of each session.
    """
    kept = counts.sum(axis=1) > 0
    if not kept.any():
        return np.eye(counts.shape[1])
    share, owner = counts[kept] / counts[kept].sum(axis=1, keepdims=True), owner[kept]
    others = np.maximum(np.bincount(owner) - 1, 1)[:, None]
    accounts = sums_at(owner, share, len(others))
    pairs = (accounts / others).T @ accounts - (share / others[owner]).T @ share  # a session is no pair with itself
    pairs /= np.maximum(pairs.sum(axis=1, keepdims=True), 1e-9)
    chance = share.mean(axis=0)
    same = (pairs - (1 - SHARE) * chance) / SHARE
    above = np.maximum(same - COMMON * chance, 0) + ALONE * np.eye(len(chance))
    return above / above.sum(axis=1, keepdims=True)
