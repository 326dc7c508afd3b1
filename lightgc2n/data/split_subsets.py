"""A split with less in it: a share of the training sequences, or no test window that training holds already."""

from dataclasses import replace

import numpy as np

from lightgc2n.data.dataset import Dataset
from lightgc2n.data.split_types import Split, hide_strangers, ranges
from lightgc2n.data.subsequences import Bools, joined, query_rows, stands_in, training_rows
from lightgc2n.errors import DataError

NO_COPIES_STAMP = "windows that stand inside a training window are left out; those left may still overlap one"
SHARES_STREAM = 1  # of the split's seed: the draw of a share does not change which windows are held out


def with_share_of_training(split: Split) -> Split:
    """The split with a share of its training sequences; a smaller share is part of every larger one."""
    share, train = split.config.training_share, split.train
    order = np.random.default_rng([split.config.seed, SHARES_STREAM]).permutation(train.sequences)
    kept = np.sort(order[: max(1, round(share * train.sequences))])
    places, offsets = ranges(train.offsets[:-1][kept], train.offsets[1:][kept])
    accounts = train.sequence_accounts[kept]
    learned = np.zeros(train.accounts, dtype=bool)
    learned[accounts[np.diff(offsets) > 0]] = True
    less = replace(
        train,
        sequence_accounts=accounts,
        offsets=offsets,
        events=train.events[places],
        times=train.times[places] if train.times is not None else None,
        given=train.given[kept] if train.given is not None else None,
    )
    return replace(
        split,
        train=less,
        train_events=split.train_events[places],
        validation=hide_strangers(split.validation, learned),
        test=hide_strangers(split.test, learned),
        known=None,  # who trains on less counts no more than that
        notes=(*split.notes, f"{share:.0%} of the training sequences, drawn at random: {len(kept):,}"),
    )


def without_copies(dataset: Dataset, split: Split) -> Split:
    """The split without test windows that stand, target included, in a training or validation window of their account.

    Validation windows that stand in a training window go too, or memory alone would choose the weights.
    """
    if dataset.kind != "windows":
        raise DataError(
            f"{dataset.name}: split.copies=false is for windows, and this dataset holds logs. Leave it out."
        )
    sizes = len(dataset.accounts), len(dataset.items)
    training, validation = training_rows(split), query_rows(split.validation)
    seen_by_choice = stands_in(validation, training, *sizes)[0]
    seen_by_test = stands_in(query_rows(split.test), joined(training, validation), *sizes)[0]
    note = f"{_told(seen_by_test)} test windows and {_told(seen_by_choice)} validation windows left out as copies"
    return replace(
        split,
        validation=split.validation.select(~seen_by_choice),
        test=split.test.select(~seen_by_test),
        notes=(*split.notes, note),
        stamps=(*split.stamps, NO_COPIES_STAMP),
    )


def _told(left_out: Bools) -> str:
    return f"{int(left_out.sum()):,} of {len(left_out):,}"
