"""Groups of points: by hand, beside scikit-learn, and the same for an account whatever stands beside it."""

import numpy as np
import pytest

from lightgc2n.people.clustering import best_count, dbscan, k_means, mixture, principal, silhouette, spheres_bic
from lightgc2n.people.sessions import Points
from tests.people.accounts import points_of, same_groups


def blobs(count: int, size: int = 12, width: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Well separated groups and which point is in which."""
    random = np.random.default_rng(seed)
    group = np.repeat(np.arange(count), size)
    return 5 * np.eye(count, width)[group] + 0.3 * random.standard_normal((len(group), width)), group


def test_each_account_gets_its_own_number_of_groups() -> None:
    first, second = blobs(2), blobs(3, size=5)
    label = k_means(points_of(first[0], second[0]), np.array([2, 3]), np.random.default_rng(0))
    assert same_groups(label[0], first[1])
    assert same_groups(label[1, :15], second[1])


def test_k_means_is_as_tight_as_that_of_scikit_learn() -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    random = np.random.default_rng(1)
    for _ in range(5):
        points = random.standard_normal((30, 4)).astype(np.float32)
        theirs = cluster.KMeans(3, n_init=4, random_state=0).fit(points)
        label = k_means(points_of(points), np.array([3]), random)[0]
        ours = sum(((points[label == one] - points[label == one].mean(axis=0)) ** 2).sum() for one in np.unique(label))
        assert ours <= 1.05 * theirs.inertia_


def test_fewer_points_than_people() -> None:
    label = k_means(points_of(np.array([[1.0, 0.0]]), blobs(2)[0][:, :2]), np.array([3, 3]), np.random.default_rng(0))
    assert label[0, 0] in range(3)
    assert len(np.unique(label[1])) == 3


def test_silhouette_by_hand() -> None:
    # Points 0, 1 | 5: for 0 a = 1, b = 5; for 1 a = 1, b = 4; 5 is alone and counts 0.
    points, label = points_of(np.array([[0.0], [1.0], [5.0]])), np.array([[0, 0, 1]])
    assert silhouette(points, label, 3)[0] == pytest.approx((4 / 5 + 3 / 4 + 0) / 3)


def test_silhouette_agrees_with_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    first, second = random.standard_normal((20, 4)), random.standard_normal((9, 4))
    label = np.zeros((2, 20), dtype=np.int64)
    label[0], label[1, :9] = random.integers(4, size=20), np.arange(9) % 3
    found = silhouette(points_of(first, second), label, 5)
    expected = [metrics.silhouette_score(first, label[0]), metrics.silhouette_score(second, label[1, :9])]
    assert found == pytest.approx(expected, abs=1e-4)


def test_bic_of_spheres_by_hand() -> None:
    # -1, 1 | 9, 11: every point is 1 from its centre, so the variance is 1; two centres, one variance, one weight.
    points, label = points_of(np.array([[-1.0], [1.0], [9.0], [11.0]])), np.array([[0, 0, 1, 1]])
    likelihood = -4 / 2 * (np.log(2 * np.pi) + 1) + 4 * np.log(1 / 2)
    assert spheres_bic(points, label, 2)[0] == pytest.approx(4 * np.log(4) - 2 * likelihood)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_count_is_found_where_groups_are_clear(count: int) -> None:
    values, group = blobs(count, size=40)
    points, random = points_of(values, values[:3]), np.random.default_rng(0)

    def by_spheres(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        label = k_means(points, counts, random)
        return label, spheres_bic(points, label, int(counts.max()))

    assert same_groups(best_count(points, range(1, 6), by_spheres)[0], group)
    assert same_groups(best_count(points, range(1, 6), lambda counts: mixture(points, counts, random))[0], group)


def test_mixture_is_no_less_likely_than_that_of_scikit_learn() -> None:
    theirs = pytest.importorskip("sklearn.mixture").GaussianMixture
    random = np.random.default_rng(0)
    values = random.standard_normal((60, 3)) * np.array([3.0, 1.0, 0.3]) + np.repeat([[0], [2]], 30, axis=0)
    points = points_of(values)
    turned = principal(points, 4).vectors[0]
    model = theirs(2, covariance_type="diag", reg_covar=1e-2, n_init=4, random_state=0).fit(turned)
    assert mixture(points, np.array([2]), random)[1][0] <= model.bic(turned) + 3


def test_principal_axes_keep_what_differs_most() -> None:
    random = np.random.default_rng(0)
    values = random.standard_normal((20, 3)) * np.array([1.0, 9.0, 3.0])
    found = principal(points_of(values, values[:4]), 2).vectors
    centred = values - values.mean(axis=0)
    parts = np.linalg.svd(centred, full_matrices=False)
    expected = parts.U[:, :2] * parts.S[:2]
    assert np.abs(found[0]) == pytest.approx(np.abs(expected), abs=1e-4)  # signs of axes mean nothing
    assert not found[1, 4:].any()


def test_dbscan_by_hand() -> None:
    # Steps of 1 join 0, 1, 2 and 10, 11, 12; 5 is nobody's and nearer to 2, 14 to 12.
    points = points_of(np.array([[0.0], [1.0], [2.0], [5.0], [10.0], [11.0], [12.0], [14.0]]), np.array([[0.0], [9.0]]))
    label = dbscan(points, np.array([1.0, 1.0]), neighbours=2)
    assert same_groups(label[0], np.array([0, 0, 0, 0, 1, 1, 1, 1]))
    assert label[1, 0] == label[1, 1]  # nothing is dense: one person


def test_dbscan_agrees_with_scikit_learn_on_dense_points() -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    values, _ = blobs(3, size=15)
    theirs = cluster.DBSCAN(eps=0.6, min_samples=4).fit(values)
    ours = dbscan(points_of(values), np.array([0.6]), neighbours=4)[0]
    core = theirs.core_sample_indices_
    assert len(core) > 20
    assert same_groups(ours[core], theirs.labels_[core])


def test_what_stands_beside_an_account_changes_nothing() -> None:
    values, other = blobs(3)[0], blobs(2, size=30)[0]
    alone, beside = points_of(values), points_of(values, other)
    assert isinstance(beside, Points)
    size, reach = len(values), np.array([1.0, 1.0])
    label = np.zeros((2, 60), dtype=np.int64)
    label[0, :size] = np.arange(size) % 3
    assert silhouette(beside, label, 3)[0] == pytest.approx(silhouette(alone, label[:1, :size], 3)[0], abs=1e-4)
    assert spheres_bic(beside, label, 3)[0] == pytest.approx(spheres_bic(alone, label[:1, :size], 3)[0], rel=1e-4)
    assert same_groups(dbscan(beside, reach)[0, :size], dbscan(alone, reach[:1])[0])
