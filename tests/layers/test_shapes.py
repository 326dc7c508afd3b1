"""The shapes in annotations are really checked in the tests."""

import pytest
import torch

from lightgc2n.metrics.ranks import rank_by_counting


def test_a_wrong_shape_is_caught() -> None:
    with pytest.raises(Exception, match="Type-check error"):
        rank_by_counting(torch.zeros(2, 3), torch.zeros(3, dtype=torch.long))
