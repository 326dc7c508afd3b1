"""What each account did, as the dataset knows it."""

import numpy as np

from lightgc2n.data.dataset import Dataset, Longs


def whole_logs(dataset: Dataset) -> tuple[Longs, Longs]:
    """Where the history of each account starts and stops among the events; equal where it has none.

    Lines of an account that have times stand side by side and are one log. Where their order is not known, as in
    windows, the longest line is its history.
    """
    owner, start, stop = np.asarray(dataset.sequence_accounts), dataset.offsets[:-1], dataset.offsets[1:]
    first, last = np.zeros((2, len(dataset.accounts)), dtype=np.int64)
    # The longest line comes last, so that it is what stays; of equally long ones the first.
    order = np.lexsort((-np.arange(len(owner)), stop - start))
    first[owner[order]], last[owner[order]] = start[order], stop[order]
    if dataset.kind == "logs" and dataset.times is not None:
        np.minimum.at(first, owner, start)
        np.maximum.at(last, owner, stop)
    return first, last
