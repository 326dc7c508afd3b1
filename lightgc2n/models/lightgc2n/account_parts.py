"""LightGC²N and its ablations on the accounts of one worker of several; together they compute what one process does.

Every worker has all items and its own accounts. The messages of its accounts to the items (Eq. 9, 10) are summed over
the workers; nothing else of the model looks at more than one account.

Shapes: B batch, M items, W embedding width.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lightgc2n.data.account_parts import AccountPart
from lightgc2n.data.batches import Batch
from lightgc2n.data.dataset import Domain
from lightgc2n.errors import SettingError
from lightgc2n.graph.sequential import Rows, SequentialGraph, graph_of_pairs, unique_pairs
from lightgc2n.layers.workers import SumOverWorkers, Workers
from lightgc2n.models.lightgc2n.ablations import VARIANTS, make_variant
from lightgc2n.models.lightgc2n.convolution import NoConvolution
from lightgc2n.models.lightgc2n.lightgc2n import Encoded, LightGC2N, LightGC2NConfig

ACCOUNTS = "account_embeddings"
HELD = ("graph.held_offsets", "graph.held_items")  # the items of each account, in a checkpoint


def refuse_negatives_of_the_batch(name: str, config: LightGC2NConfig) -> None:
    """Raise an error for a setting whose loss needs the items of the whole batch on one machine."""
    if config.negatives == "batch" and replace(config, **VARIANTS[name][1]).contrast_weight:
        raise SettingError(
            "negatives=batch contrasts the items of a batch with each other, so it trains on one machine. "
            "Use negatives=all, or leave the workers out."
        )


def part_of_graph(part: AccountPart, events: str, workers: Workers) -> SequentialGraph:
    """Return the graph of a worker's accounts, weighted by the degrees of items in the graph of all accounts."""
    items = part.train.items
    held, follows = unique_pairs(part.train, events)
    degrees = torch.from_numpy(np.bincount(held % items, minlength=items).astype(np.int64))
    workers.sum(degrees, "graph")
    rows = Rows(part.worker, part.workers, part.accounts)
    return graph_of_pairs(held, workers.union(follows), part.train.accounts, items, degrees.numpy(), rows)


def build_part(name: str, config: LightGC2NConfig, part: AccountPart, workers: Workers) -> LightGC2N:
    """Build the model of a worker: its weights are its rows of the whole model's weights."""
    refuse_negatives_of_the_batch(name, config)
    model = make_variant(name, config, part_of_graph(part, config.graph_events, workers))
    if not isinstance(model.convolution, NoConvolution):
        sums = model.convolution.graph
        sums.accounts_to_items = SumOverWorkers(sums.accounts_to_items, workers)
    return model


@dataclass(frozen=True)
class PartScorer:
    """Scores for the accounts of a worker, and for unseen accounts; all workers encode together."""

    model: LightGC2N
    workers: Workers

    @torch.no_grad()
    def encode(self) -> tuple[Encoded, Float[Tensor, "W"]]:
        """The encoding of the model, and the mean of the accounts of all workers, which unseen accounts start from."""
        active = self.model.graph.held_offsets.diff() > 0
        rows = self.model.account_embeddings[active]
        sums = torch.cat([rows.sum(dim=0, dtype=torch.float64), active.sum()[None]])
        self.workers.sum(sums, "evaluation")
        return self.model.encode(), (sums[:-1] / sums[-1].clamp(min=1)).to(rows.dtype)

    @torch.no_grad()
    def scores(self, encoded: tuple[Encoded, Float[Tensor, "W"]], batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        layers, mean = encoded
        neighbours = self.model.from_graph_and_history(batch)
        start = torch.where((batch.account >= 0)[:, None], neighbours.start, mean)
        return self.model.scores_from(layers, batch, replace(neighbours, start=start), domain)


def is_of_accounts(name: str) -> bool:
    """Whether a tensor of a checkpoint has one row for each account."""
    return name.endswith(ACCOUNTS) and not name.startswith("optimizer.step.")


def gather_checkpoint(tensors: dict[str, Tensor], accounts: int, workers: Workers) -> dict[str, Tensor]:
    """Return the tensors of the whole model's checkpoint on worker 0; the others send theirs and get nothing."""
    whole = {name: tensor for name, tensor in tensors.items() if name not in HELD} if workers.number == 0 else {}
    for name in (name for name in tensors if is_of_accounts(name)):
        if parts := workers.gather(tensors[name]):
            whole[name] = _interleaved(parts, accounts)
    offsets, items = (tensors[name] for name in HELD)
    degrees, held = workers.gather(offsets.diff()), workers.gather(items)
    if held:
        whole[HELD[0]] = torch.cat([offsets[:1], _interleaved(degrees, accounts).cumsum(dim=0)])
        whole[HELD[1]] = items.new_empty(int(whole[HELD[0]][-1]))
        for worker, (degree, part) in enumerate(zip(degrees, held, strict=True)):
            first = torch.repeat_interleave(
                whole[HELD[0]][worker : -1 : workers.count] - (degree.cumsum(0) - degree), degree
            )
            whole[HELD[1]][first + torch.arange(len(part))] = part
    return whole


def _interleaved(parts: list[Tensor], accounts: int) -> Tensor:
    """The rows of all workers in the order of the accounts."""
    whole = parts[0].new_empty(accounts, *parts[0].shape[1:])
    for worker, part in enumerate(parts):
        whole[worker :: len(parts)] = part
    return whole
