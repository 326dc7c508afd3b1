"""Answers of several domains from one table: each domain reads what all of them say, its own words last.

Shapes: M items, K domains, B questions, F width of one domain's words.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightgc2n.data.dataset import Domain
from lightgc2n.layers.crossentropy import linear_cross_entropy


class DomainHead(nn.Module):
    """A free vector and a bias for each item; scores are told apart within a domain only."""

    def __init__(self, domains: Sequence[Domain], width: int) -> None:
        super().__init__()
        self.domains = tuple(domains)
        self.weight = nn.Parameter(torch.empty(domains[-1].stop, width * len(domains)))
        self.bias = nn.Parameter(torch.zeros(domains[-1].stop))
        for domain in domains:
            nn.init.xavier_normal_(self.weight.data[domain.start : domain.stop])

    def loss(self, words: list[Float[Tensor, "B F"]], targets: Int[Tensor, "B K"]) -> Float[Tensor, ""]:
        """Σ over the domains of the mean cross-entropy over the questions that it has an answer to."""
        terms = []
        for number, domain in enumerate(self.domains):
            target, own = targets[:, number], slice(domain.start, domain.stop)
            asked = (target >= 0).float()
            share, local = asked / asked.sum().clamp(min=1), (target - domain.start).clamp(min=0)
            heard = _own_last(words, number)
            terms.append(linear_cross_entropy(heard, self.weight[own], local, share, self.bias[own]))
        return torch.stack(terms).sum()

    def scores(self, words: list[Float[Tensor, "B F"]], domain: Domain) -> Float[Tensor, "B M"]:
        """A score for each item of the domain, which may be any range of items."""
        found = []
        for number, own in enumerate(self.domains):
            start, stop = max(own.start, domain.start), min(own.stop, domain.stop)
            if start < stop:
                weight, bias = self.weight[own.start : own.stop], self.bias[own.start : own.stop]
                # All items of the domain, whatever is asked, so that a part never differs from the whole.
                whole = torch.addmm(bias, _own_last(words, number), weight.T)
                found.append(whole[:, start - own.start : stop - own.start])
        return torch.cat(found, dim=1)


def _own_last(words: list[Float[Tensor, "B F"]], number: int) -> Float[Tensor, "B KF"]:
    return torch.cat([*words[:number], *words[number + 1 :], words[number]], dim=1)
