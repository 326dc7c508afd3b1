"""Cluster points into people: k-means, Gaussian mixtures and DBSCAN, for many accounts at once.

Shapes: B accounts, N points (padded), W width of a point, R starts, K people.
"""

from collections.abc import Callable

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.sessions import Floats, Matrix, Points

MOST_PEOPLE = 5  # in one account, if the count is not given
STARTS, ROUNDS = 4, 25
MIXTURE_ROUNDS = 15
SMALLEST_SPREAD = 1e-2  # smallest variance in any direction: a cluster must not collapse onto two equal points
MIXTURE_WIDTH = 4
NEIGHBOURS = 3
FAR = np.float32(np.inf)


def k_means(points: Points, count: Longs, random: np.random.Generator) -> Longs:
    """Return the cluster of each point [B, N], the best of several starts.

    Args:
        count: clusters of each account; some may be empty if there are few distinct points.
    """
    centres = _spread_centres(points, count, random)
    for _ in range(ROUNDS):
        label, far = _nearest(points, centres, count)
        moved = _means(points, label, centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    label, far = _nearest(points, centres, count)
    tightest = (far * points.known[:, :, None]).sum(axis=1).argmin(axis=1)
    return np.take_along_axis(label, tightest[:, None, None], axis=2)[:, :, 0]


def _spread_centres(points: Points, count: Longs, random: np.random.Generator) -> Matrix:
    """Draw initial centres [B, R, K, W] by k-means++: with probability proportional to the squared distance."""
    row = np.arange(len(points.known))[:, None]
    far = points.known[:, None, :].repeat(STARTS, axis=1).astype(np.float32)
    centres = []
    for _ in range(int(count.max())):
        reach = np.cumsum(far + 1e-12 * points.known[:, None, :], axis=2, dtype=np.float64)
        drawn = (reach <= random.random(reach.shape[:2])[..., None] * reach[..., -1:]).sum(axis=2)
        centres.append(points.vectors[row, np.minimum(drawn, far.shape[2] - 1)])
        apart = _squared_distances(points, centres[-1])
        far = np.minimum(far if len(centres) > 1 else FAR, apart.transpose(0, 2, 1)) * points.known[:, None, :]
    return np.stack(centres, axis=2)


def _squared_distances(points: Points, centres: Matrix) -> Matrix:
    """Return the squared distance from each point to each of C centres [B, C, W]: [B, N, C]."""
    cross = points.vectors @ centres.transpose(0, 2, 1)
    lengths = (points.vectors**2).sum(axis=2)[:, :, None] + (centres**2).sum(axis=2)[:, None, :]
    return np.maximum(lengths - 2 * cross, 0)


def _nearest(points: Points, centres: Matrix, count: Longs) -> tuple[Longs, Matrix]:
    """Return the nearest centre of each point and its squared distance, for each start: [B, N, R]."""
    accounts, starts, people, width = centres.shape
    far = _squared_distances(points, centres.reshape(accounts, starts * people, width))
    far = far.reshape(accounts, -1, starts, people)
    far = np.where(np.arange(people) < count[:, None, None, None], far, FAR)
    return far.argmin(axis=3), far.min(axis=3)


def _means(points: Points, label: Longs, centres: Matrix) -> Matrix:
    """Return the mean of each cluster; an empty cluster keeps its centre."""
    accounts, starts, people, _ = centres.shape
    belongs = (label[..., None] == np.arange(people)) & points.known[:, :, None, None]
    flat = belongs.reshape(accounts, -1, starts * people).transpose(0, 2, 1).astype(np.float32)
    sizes = flat.sum(axis=2).reshape(accounts, starts, people, 1)
    sums = (flat @ points.vectors).reshape(centres.shape)
    return np.where(sizes > 0, sums / np.maximum(sizes, 1), centres)


def memberships(points: Points, label: Longs, people: int) -> Matrix:
    """Return one-hot cluster memberships [B, N, K]; 0 for padding."""
    return ((label[..., None] == np.arange(people)) & points.known[..., None]).astype(np.float32)


def distances(points: Points) -> Matrix:
    """Return the distances between all points of an account [B, N, N]."""
    return np.sqrt(_squared_distances(points, points.vectors))


def silhouette(points: Points, label: Longs, people: int) -> Floats:
    """Return the mean silhouette (b - a) / max(a, b): a to the own cluster, b to the nearest other; 0 if alone."""
    own = memberships(points, label, people)
    sums, sizes = distances(points) @ own, own.sum(axis=1)[:, None, :]
    inside = (sums * own).sum(axis=2) / np.maximum((sizes * own).sum(axis=2) - 1, 1)
    others = np.where((own > 0) | (sizes == 0), FAR, sums / np.maximum(sizes, 1)).min(axis=2)
    larger = np.maximum(inside, others)
    counts = ((sizes * own).sum(axis=2) > 1) & np.isfinite(others) & (larger > 0)
    value = np.where(counts, (others - inside) / np.where(counts, larger, 1), 0.0)
    return value.sum(axis=1) / points.known.sum(axis=1)


def spheres_bic(points: Points, label: Longs, people: int) -> Floats:
    """Return the BIC of clusters that are spheres of equal size; smaller is better."""
    own = memberships(points, label, people)
    sizes, number, width = own.sum(axis=1), points.known.sum(axis=1), points.vectors.shape[2]
    centres = own.transpose(0, 2, 1) @ points.vectors / np.maximum(sizes, 1)[..., None]
    far = (_squared_distances(points, centres) * own).sum(axis=(1, 2))
    spread = np.maximum(far / (number * width), 1e-6)
    likely = -0.5 * number * width * (np.log(2 * np.pi * spread) + 1)
    likely += (sizes * np.log(np.maximum(sizes, 1) / number[:, None])).sum(axis=1)
    return _bic(likely, number, people * width + people)


def mixture(points: Points, count: Longs, random: np.random.Generator) -> tuple[Longs, Floats]:
    """Fit a Gaussian mixture with diagonal covariances; return the most likely component of each point, and the BIC.

    It starts from k-means. Points are first projected onto the account's principal axes, because a few sessions cannot
    determine variances in many directions.
    """
    points = principal(points, MIXTURE_WIDTH)
    people, number = int(count.max()), points.known.sum(axis=1)
    share = memberships(points, k_means(points, count, random), people)
    offered = np.arange(people) < count[:, None]
    for _ in range(MIXTURE_ROUNDS):
        density = np.where(offered[:, None], _log_densities(points, share), -np.inf)
        likely = np.logaddexp.reduce(density, axis=2)
        share = (np.exp(density - likely[..., None]) * points.known[..., None]).astype(np.float32)
    total = (likely * points.known).sum(axis=1)
    return density.argmax(axis=2), _bic(total, number, count * (2 * points.vectors.shape[2] + 1) - 1)


def _log_densities(points: Points, share: Matrix) -> Floats:
    """Return log(weight x density) of each point for each component, [B, N, K]."""
    sizes = share.sum(axis=1)[..., None] + 1e-6
    spread_out = share.transpose(0, 2, 1)
    mean = spread_out @ points.vectors / sizes
    variance = np.maximum(spread_out @ points.vectors**2 / sizes - mean**2, 0) + SMALLEST_SPREAD
    weight = np.log(sizes[..., 0] / sizes[..., 0].sum(axis=1, keepdims=True))
    constant = weight - 0.5 * np.log(2 * np.pi * variance).sum(axis=2) - 0.5 * (mean**2 / variance).sum(axis=2)
    linear = points.vectors @ (mean / variance).transpose(0, 2, 1)
    square = points.vectors**2 @ (0.5 / variance).transpose(0, 2, 1)
    return constant[:, None] + linear - square


def principal(points: Points, width: int) -> Points:
    """Project the points of each account onto its principal axes."""
    number = points.known.sum(axis=1)[:, None, None]
    centred = (points.vectors - points.vectors.sum(axis=1, keepdims=True) / number) * points.known[..., None]
    axes = np.linalg.eigh(centred.transpose(0, 2, 1) @ centred)[1][:, :, ::-1][:, :, :width]
    return Points(centred @ axes, points.known)


def _bic(likely: Floats, number: Longs, parameters: int | Longs) -> Floats:
    return parameters * np.log(number) - 2 * likely


def dbscan(points: Points, reach: Floats, neighbours: int = NEIGHBOURS) -> Longs:
    """Return clusters of dense points; a point near none joins the nearest dense point.

    Args:
        reach: the neighbourhood radius of each account; a point with `neighbours` in it, itself included, is dense.
    """
    apart = np.where(points.known[:, :, None] & points.known[:, None, :], distances(points), FAR)
    near = apart <= reach[:, None, None]
    dense = near.sum(axis=2) >= neighbours
    joined = near & dense[:, :, None] & dense[:, None, :]
    label = np.where(dense, np.arange(dense.shape[1]), dense.shape[1])
    while True:  # propagate the smallest cluster number
        smaller = np.where(joined, label[:, None, :], dense.shape[1]).min(axis=2)
        if (smaller >= label).all():
            break
        label = np.minimum(label, smaller)
    nearest = np.where(dense[:, None, :], apart, FAR).argmin(axis=2)
    nearest_label = np.take_along_axis(label, nearest, axis=1)
    return np.where(dense, label, np.where(dense.any(axis=1)[:, None], nearest_label, 0))


def best_count(points: Points, counts: range, grouped: Callable[[Longs], tuple[Longs, Floats]]) -> Longs:
    """Return the clusters of each account for the count of lowest cost.

    Args:
        grouped: maps the counts of all accounts to clusters and their cost per account.
    """
    best, cheapest = np.zeros(points.known.shape, dtype=np.int64), np.full(len(points.known), np.inf)
    for count in counts:
        label, cost = grouped(np.full(len(points.known), count))
        better = cost < cheapest
        best[better], cheapest[better] = label[better], cost[better]
    return best
