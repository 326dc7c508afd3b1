"""Random numbers for the part of a table that one of several workers holds: those that the whole table would get.

Every worker draws the numbers of the whole table, so that its part does not depend on the number of workers.

Shapes: R rows, W width, P targets.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import dropout
from torch.nn.init import xavier_uniform_

from lightgc2n.data.batches import TrainingBatch
from lightgc2n.graph.sequential import Rows

ROWS_AT_ONCE = 2**16


@torch.no_grad()
def xavier_uniform(table: Float[Tensor, "R W"], rows: Rows | None) -> None:
    """Initialise a table, or the part of a table with these rows."""
    if rows is None:
        xavier_uniform_(table)
        return
    bound, filled = math.sqrt(3) * math.sqrt(2 / (rows.height + table.shape[1])), 0  # rounded as torch rounds it
    for first in range(0, rows.height, ROWS_AT_ONCE):
        drawn = table.new_empty(min(ROWS_AT_ONCE, rows.height - first), table.shape[1]).uniform_(-bound, bound)
        own = drawn[(rows.first - first) % rows.step :: rows.step]
        table[filled : filled + len(own)] = own
        filled += len(own)


def dropout_of_targets(
    vectors: Float[Tensor, "P W"], batch: TrainingBatch, share: float, training: bool
) -> Float[Tensor, "P W"]:
    """Dropout of one vector for each target of a batch; the mask is that of the whole batch."""
    if batch.places is None or batch.whole is None:
        return dropout(vectors, share, training)
    mask = dropout(vectors.new_ones(int(batch.whole[0]), vectors.shape[1]), share, training)
    return vectors * mask[batch.places]
