"""ComiRec-DR (Cen et al., KDD 2020): dynamic routing extracts several interests; an item's score is that of the best.

Shapes: B batch, T history, W events read, M items, N items of a domain, I queries, K interests, D width,
P events of all histories.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch, draw_places, histories_before
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.layers.sampled_losses import DrawnSoftmax, mean_softmax
from lightgc2n.layers.squash import squash
from lightgc2n.models.contract import Model

POPULARITY_POWER = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class ComiRecConfig:
    """The authors' values where they fit; the paper's symbols in brackets."""

    width: int = setting(64, at_least=1, help="Width of items and interests [d].")
    interests: int = setting(4, at_least=1, at_most=32, help="Interests of one history [K].")
    routing_steps: int = setting(3, at_least=1, at_most=10, help="Iterations of the dynamic routing.")
    max_length: int = setting(50, at_least=1, help="Newest events that are read.")
    maps: str = setting(
        "place", choices=("place", "shared"), help="A map for each place of the history, or one shared map."
    )
    align: str = setting(
        "newest", choices=("newest", "oldest"), help="The end of the history that places are counted from."
    )
    cuts: int = setting(4, at_least=1, help="Random places of each log that are trained on in each epoch.")
    dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of features dropped in training.")
    loss: str = setting(
        "softmax", choices=("softmax", "sampled"), help="Cross-entropy over all items, or against sampled items."
    )
    negatives: int = setting(2560, at_least=1, help="Items drawn for each batch by the sampled loss.")
    sharpness: float = setting(10.0, at_least=0.01, help="Initial value of the learned scale of all scores.")


class ComiRec(Model):
    """Scores by the best-matching interest of the history; the account is not used."""

    def __init__(self, config: ComiRecConfig, popularity: Float[Tensor, "M"]) -> None:
        super().__init__()
        self.config = config
        weight = popularity**POPULARITY_POWER
        sampled = DrawnSoftmax(weight / weight.sum(), config.negatives)
        self.loss = sampled if config.loss == "sampled" else mean_softmax
        places = config.max_length if config.maps == "place" else 1
        self.maps = nn.Parameter(torch.randn(places, config.width, config.interests * config.width))  # W
        self.items = nn.Parameter(torch.empty(len(popularity), config.width))
        self.log_sharpness = nn.Parameter(torch.tensor(config.sharpness).log())
        nn.init.xavier_uniform_(self.items)

    @classmethod
    def build(cls, config: ComiRecConfig, train: Training) -> "ComiRec":
        return cls(config, torch.from_numpy(train.popularity).float())

    @classmethod
    def restore(cls, config: ComiRecConfig, tensors: dict[str, Tensor]) -> "ComiRec":
        model = cls(config, torch.ones(len(tensors["items"])))
        model.load_state_dict(tensors)
        return model

    def warm_start_tensors(self) -> dict[str, str]:
        return {"items": "items"}

    def encode(self) -> Float[Tensor, "M D"]:
        """Item vectors, scaled up because interests are shorter than one."""
        # Differs: the authors have no such factor; a softmax over all items does not train without it.
        return self.log_sharpness.exp() * self.items

    def losses(self, encoded: Float[Tensor, "M D"], batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """The mean over sampled places, each scored with the interest nearest to its target."""
        row, place = draw_places(batch.counts, self.config.cuts)
        target = batch.next_item[row, place]
        interests = self.interests(batch.log, row, place)
        nearest = torch.einsum("ikd,id->ik", interests, embedding(target, encoded)).argmax(dim=1)  # k*
        chosen = interests[torch.arange(len(row), device=row.device), nearest]  # u
        return {"next_item": self.loss(chosen, encoded, target)}

    @torch.no_grad()
    def scores(self, encoded: Float[Tensor, "M D"], batch: Batch, domain: Domain) -> Float[Tensor, "B N"]:
        """The score of the best interest for each item of the domain; equal scores for an empty history."""
        row = torch.arange(len(batch.length), device=batch.length.device)
        interests = self.interests(batch.history, row, batch.length - 1)
        best = interests[:, 0] @ encoded.T
        for interest in range(1, self.config.interests):
            torch.maximum(best, interests[:, interest] @ encoded.T, out=best)
        return best[:, domain.start : domain.stop]

    def interests(
        self, log: Int[Tensor, "B T"], row: Int[Tensor, "I"], place: Int[Tensor, "I"]
    ) -> Float[Tensor, "I K D"]:
        """The interests after the given places of logs."""
        newest_first = self.config.align == "newest"
        items, known = histories_before(log, row, place, self.config.max_length, newest_first)
        events = dropout(embedding(items.T, self.items), self.config.dropout, self.training)  # x, place by place
        votes = torch.bmm(events, self.maps.expand(self.config.max_length, -1, -1)[: len(events)])  # û
        # Padding is removed before the routing, which then needs no mask.
        step, owner = torch.nonzero(known.T, as_tuple=True)
        votes = votes[step, owner].view(len(owner), self.config.interests, self.config.width)
        return route_interests(votes, owner, len(row), self.config.routing_steps)


def route_interests(
    votes: Float[Tensor, "P K D"], owner: Int[Tensor, "P"], histories: int, steps: int
) -> Float[Tensor, "I K D"]:
    """The interests of each history by dynamic routing of the events' votes.

    Only the last iteration has gradients; the earlier ones compute the assignment.

    Args:
        owner: the history that each event belongs to.
    """
    logits = votes.new_zeros(votes.shape[:2])  # b
    fixed = votes.detach()
    for _ in range(steps - 1):
        interests = squash(_weighted_votes(logits, fixed, owner, histories))
        logits = logits + (fixed * interests[owner]).sum(dim=2)
    return squash(_weighted_votes(logits, votes, owner, histories))  # o


def _weighted_votes(
    logits: Float[Tensor, "P K"], votes: Float[Tensor, "P K D"], owner: Int[Tensor, "P"], histories: int
) -> Float[Tensor, "I K D"]:
    """v: the votes of each history's events, summed with softmax weights over the interests."""
    shares = torch.softmax(logits, dim=1)  # c
    return votes.new_zeros(histories, *votes.shape[1:]).index_add(0, owner, shares[:, :, None] * votes)
