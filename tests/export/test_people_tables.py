"""Vectors with four bits a number, by hand: what is packed, and what comes back."""

import numpy as np

from lightgc2n.export.write_bundle import in_nibbles
from lightgc2n.people.session_features import item_vectors
from lightgc2n.recommending.load_bundle import of_nibbles


def test_nibbles_by_hand() -> None:
    """Steps of a seventh of the largest, 8 for 0; the first half of a vector in the lower bits."""
    packed = in_nibbles(np.array([[[0.8, 0.0, -0.6, 0.0], [0.0, 0.0, 0.0, 0.0]]], dtype=np.float32))
    assert packed.tolist() == [[[15 + 16 * 3, 8 + 16 * 8], [8 + 16 * 8, 8 + 16 * 8]]]  # -0.6 is -5.25 steps
    length = (7**2 + 5**2) ** 0.5
    np.testing.assert_allclose(of_nibbles(packed), [[[7 / length, 0, -5 / length, 0], [0, 0, 0, 0]]], rtol=1e-6)


def test_nibbles_point_nearly_the_same_way() -> None:
    vectors = np.random.default_rng(0).normal(size=(2, 300, 32)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    found = of_nibbles(in_nibbles(vectors))
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1, rtol=1e-6)
    assert (found * vectors).sum(axis=-1).min() > 0.98


def test_what_people_are_found_by_is_of_length_one_or_zero() -> None:
    """Which is why no scale need be kept; nobody has items 5 and 6 beside any other."""
    account, item = np.array([0, 0, 0, 1, 1, 2, 2, 3]), np.array([0, 1, 2, 0, 1, 3, 4, 5])
    vectors = item_vectors(account, item, 7)
    lengths = np.linalg.norm(vectors, axis=1)
    np.testing.assert_allclose(lengths, [1, 1, 1, 1, 1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(of_nibbles(in_nibbles(vectors)), axis=1), lengths, atol=1e-6)
