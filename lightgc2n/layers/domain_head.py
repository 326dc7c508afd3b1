"""Output layer for several domains: each domain scores its items from the features of all domains, its own last.

Shapes: M items, K domains, B queries, F features of one domain.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightgc2n.data.dataset import Domain
from lightgc2n.layers.crossentropy import linear_cross_entropy


class DomainHead(nn.Module):
    """A weight vector and a bias for each item; each domain has its own softmax."""

    def __init__(self, domains: Sequence[Domain], width: int) -> None:
        super().__init__()
        self.domains = tuple(domains)
        self.weight = nn.Parameter(torch.empty(domains[-1].stop, width * len(domains)))
        self.bias = nn.Parameter(torch.zeros(domains[-1].stop))
        for domain in domains:
            nn.init.xavier_normal_(self.weight.data[domain.start : domain.stop])

    def loss(self, features: list[Float[Tensor, "B F"]], targets: Int[Tensor, "B K"]) -> Float[Tensor, ""]:
        """The sum over domains of the mean cross-entropy over the queries that have a target in the domain."""
        terms = []
        for number, domain in enumerate(self.domains):
            target, own = targets[:, number], slice(domain.start, domain.stop)
            has_target = (target >= 0).float()
            share, local = has_target / has_target.sum().clamp(min=1), (target - domain.start).clamp(min=0)
            joined = _own_last(features, number)
            terms.append(linear_cross_entropy(joined, self.weight[own], local, share, self.bias[own]))
        return torch.stack(terms).sum()

    def scores(self, features: list[Float[Tensor, "B F"]], domain: Domain) -> Float[Tensor, "B M"]:
        """A score for each item of the domain, which may be any range of items."""
        parts = []
        for number, own in enumerate(self.domains):
            start, stop = max(own.start, domain.start), min(own.stop, domain.stop)
            if start < stop:
                weight, bias = self.weight[own.start : own.stop], self.bias[own.start : own.stop]
                # All items of the domain, so that a part has bit for bit the scores of the whole.
                whole = torch.addmm(bias, _own_last(features, number), weight.T)
                parts.append(whole[:, start - own.start : stop - own.start])
        return torch.cat(parts, dim=1)


def _own_last(features: list[Float[Tensor, "B F"]], number: int) -> Float[Tensor, "B KF"]:
    return torch.cat([*features[:number], *features[number + 1 :], features[number]], dim=1)
