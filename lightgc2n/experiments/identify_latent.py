"""The latent users of a trained run as methods that assign events to people: by ownership, and by affinity."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from lightgc2n.data.batches import Batch, query_batches
from lightgc2n.data.dataset import Dataset, Longs
from lightgc2n.data.splits import UNSEEN, Queries, split_dataset
from lightgc2n.errors import DataError
from lightgc2n.models.contract import Model
from lightgc2n.models.lightgc2n.subspaces import SubspaceAlignment, subspace_affinity
from lightgc2n.people.reference_methods import Method, Random
from lightgc2n.people.sessions import Logs
from lightgc2n.recommending.queries import refuse_diverged
from lightgc2n.training.runs import load_run, plan_of, refuse_other_data

ROWS_PER_BATCH = 256
Shares = npt.NDArray[np.float32]


def latent_methods(run: Path, dataset: Dataset, accounts: Longs) -> dict[str, Method]:
    """The methods of a run, named after its model.

    Args:
        accounts: the account of each log.
    """
    plan = plan_of(run)
    if plan.domain:
        raise DataError(
            f"{run}: trained on domain {plan.domain!r} alone, but all events are scored. Train on all domains."
        )
    refuse_other_data(run, dataset)
    name, model, _ = load_run(run)
    train = split_dataset(dataset, plan.split).train
    learned = np.isin(accounts, train.sequence_accounts[np.diff(train.offsets) > 0])
    named = np.where(learned, accounts, UNSEEN)
    methods = {f"{name}-ownership": Method(partial(_by_ownership, name=name, model=model, accounts=named))}
    if isinstance(getattr(model, "alignment", None), SubspaceAlignment):
        methods[f"{name}-affinity"] = Method(partial(_by_affinity, model=model))
    return methods


def _by_ownership(
    logs: Logs, count: Longs | None, random: Random, *, name: str, model: Model, accounts: Longs
) -> Longs:
    return strongest(ownership(name, model, logs, accounts), logs, count)


def _by_affinity(logs: Logs, count: Longs | None, random: Random, *, model: Model) -> Longs:
    return strongest(affinity(model)[logs.items], logs, count)


@torch.no_grad()
def ownership(name: str, model: Model, logs: Logs, accounts: Longs) -> Shares:
    """Return the ownership of each event by each latent user (Eq. 5), with the account's whole log as its history."""
    encoded, parts = model.encode(), []
    for batch in _histories(logs, accounts):
        users = model.latent_users(encoded, batch)
        refuse_diverged(name, users.ownership.numpy(), users.weight.numpy())
        parts.append(users.ownership.transpose(1, 2)[batch.known])
    return torch.cat(parts).numpy()


@torch.no_grad()
def affinity(model: Model) -> Shares:
    """Return the affinity of each item to each latent user's subspace."""
    alignment = model.alignment
    assert isinstance(alignment, SubspaceAlignment)
    return subspace_affinity(model.encode().items, alignment.bases, alignment.smoothing).numpy()  # Eq. 15


def _histories(logs: Logs, accounts: Longs) -> Iterator[Batch]:
    owner, start, stop = accounts.astype(np.int32), logs.offsets[:-1], logs.offsets[1:]
    nothing = np.zeros_like(owner)  # no target is needed
    queries = Queries(owner, owner, start, stop, nothing, nothing.astype(np.int64), logs.items, None)
    return (one.batch for one in query_batches(queries, ROWS_PER_BATCH))


def strongest(shares: Shares, logs: Logs, count: Longs | None) -> Longs:
    """Return for each event the latent user with the largest share.

    Args:
        shares: of each latent user in each event, [E, K].
        count: the number of people of each account, if given; only its `count` strongest latent users are then used.
    """
    if count is None:
        return shares.argmax(axis=1)
    total = np.zeros((logs.accounts, shares.shape[1]))
    np.add.at(total, logs.account, shares)
    place = np.argsort(np.argsort(-total, axis=1, kind="stable"), axis=1)
    return np.where((place < count[:, None])[logs.account], shares, -np.inf).argmax(axis=1)
