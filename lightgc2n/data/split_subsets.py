"""Reduce a split: to a share of the training sequences, or to test windows that training does not contain."""

from dataclasses import replace

import numpy as np

from lightgc2n.data.dataset import Dataset
from lightgc2n.data.split_types import Split, mask_unseen_accounts, ranges
from lightgc2n.data.subsequences import Bools, contained_in, joined, query_rows, training_rows
from lightgc2n.errors import DataError

NO_COPIES_STAMP = "windows that stand inside a training window are left out; those left may still overlap one"
SHARES_STREAM = 1  # a separate random stream, so that the share does not change which windows are held out


def with_share_of_training(split: Split) -> Split:
    """Return the split with a share of its training sequences; a smaller share is a subset of every larger one."""
    share, train = split.config.training_share, split.train
    order = np.random.default_rng([split.config.seed, SHARES_STREAM]).permutation(train.sequences)
    rows = np.sort(order[: max(1, round(share * train.sequences))])
    places, offsets = ranges(train.offsets[:-1][rows], train.offsets[1:][rows])
    accounts = train.sequence_accounts[rows]
    learned = np.zeros(train.accounts, dtype=bool)
    learned[accounts[np.diff(offsets) > 0]] = True
    less = replace(
        train,
        sequence_accounts=accounts,
        offsets=offsets,
        events=train.events[places],
        times=train.times[places] if train.times is not None else None,
        domain_targets=train.domain_targets[rows] if train.domain_targets is not None else None,
    )
    return replace(
        split,
        train=less,
        train_events=split.train_events[places],
        validation=mask_unseen_accounts(split.validation, learned),
        test=mask_unseen_accounts(split.test, learned),
        known=None,  # counting models see the reduced training data only
        notes=(*split.notes, f"{share:.0%} of the training sequences, drawn at random: {len(rows):,}"),
    )


def without_copies(dataset: Dataset, split: Split) -> Split:
    """Return the split without test windows that a training or validation window of their account contains.

    Validation windows contained in a training window are removed too; otherwise memorising would select the checkpoint.
    """
    if dataset.kind != "windows":
        raise DataError(
            f"{dataset.name}: split.copies=false is for windows, and this dataset holds logs. Leave it out."
        )
    sizes = len(dataset.accounts), len(dataset.items)
    training, validation = training_rows(split), query_rows(split.validation)
    seen_by_choice = contained_in(validation, training, *sizes)[0]
    seen_by_test = contained_in(query_rows(split.test), joined(training, validation), *sizes)[0]
    note = (
        f"{_count_of(seen_by_test)} test windows and {_count_of(seen_by_choice)} validation windows left out as copies"
    )
    return replace(
        split,
        validation=split.validation.select(~seen_by_choice),
        test=split.test.select(~seen_by_test),
        notes=(*split.notes, note),
        stamps=(*split.stamps, NO_COPIES_STAMP),
    )


def _count_of(left_out: Bools) -> str:
    return f"{int(left_out.sum()):,} of {len(left_out):,}"
