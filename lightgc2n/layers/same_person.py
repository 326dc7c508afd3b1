"""Who acts: subspaces say how far an event is each latent user's, and two events are as near as they share one.

Shapes: B logs, T longest log, A latent users, H views, D width.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, layer_norm, normalize

SHARPNESS = 5.0  # of the first affinities: a cosine of 1 beats one of 0 by e⁵


class SamePerson(nn.Module):
    """The chance that two events are of one latent user, in several views of who they are.

    A view has a subspace for each latent user; an event is the more theirs the nearer its direction is.
    """

    def __init__(self, views: int, latent_users: int, width: int) -> None:
        super().__init__()
        self.bases = nn.Parameter(torch.randn(views, latent_users, width))
        self.sharpness = nn.Parameter(torch.zeros(views))

    def ownership(self, events: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T A"]:
        """How far each event is each latent user's; sums to one over them."""
        cosines = torch.einsum("btd,had->bhta", normalize(events, dim=-1), normalize(self.bases, dim=-1))
        return torch.softmax(SHARPNESS * self.sharpness.exp()[:, None, None] * cosines, dim=-1)

    def forward(self, events: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T T"]:
        ownership = self.ownership(events)
        return ownership @ ownership.mT


class NobodyApart(nn.Module):
    """In place of `SamePerson`: all events are of one person."""

    def __init__(self, views: int) -> None:
        super().__init__()
        self.views = views

    def forward(self, events: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T T"]:
        logs, places = events.shape[:2]
        return torch.ones(logs, self.views, places, places, device=events.device)


class PersonState(nn.Module):
    """What the person who acts now has done lately: a mean over the log, weighted by likeness and by age.

    Each view forgets at a rate of its own: it has a learned weight for every age.
    """

    def __init__(self, width: int, views: int, longest: int, drop: float) -> None:
        super().__init__()
        self.drop, self.width, self.views = drop, width, views
        rates = torch.linspace(0.1, 1.5, views)[:, None]
        self.fading = nn.Parameter(-rates * torch.arange(1, longest + 1).log())  # [views, ages]
        self.own, self.value = nn.Linear(width, width), nn.Linear(width, views * width, bias=False)
        self.gather = nn.Linear(views * width, width)
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        nn.init.normal_(self.outer.weight, std=0.02)  # the state starts all but without it
        self.norm = nn.LayerNorm(width)

    def forward(self, events: Float[Tensor, "B T D"], like: Float[Tensor, "B H T T"]) -> Float[Tensor, "B T D"]:
        """The state after every event; later events never reach it, padding included."""
        events = self._dropped(events)
        logs, places = events.shape[:2]
        values = self.value(events).view(logs, places, self.views, self.width).transpose(1, 2)
        heard = (self.weights(like) @ values).transpose(1, 2).flatten(2)
        state = self.own(events) + self.gather(self._dropped(heard))
        more = self._dropped(torch.relu(self.inner(layer_norm(state, (self.width,)))))
        return self.norm(state + self.outer(more))

    def weights(self, like: Float[Tensor, "B H T T"]) -> Float[Tensor, "B H T T"]:
        """How much each event hears from itself and from each earlier one; sums to one."""
        ages = ages_between(like.shape[-1], like.device)
        faded = like * self.fading.exp()[:, ages.clamp(min=0)] * (ages >= 0)
        return faded / faded.sum(dim=-1, keepdim=True)

    def _dropped(self, vectors: Tensor) -> Tensor:
        return dropout(vectors, self.drop, self.training)


class NewestAlone(nn.Module):
    """In place of `PersonState`: the newest event says all."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, events: Float[Tensor, "B T D"], like: Float[Tensor, "B H T T"]) -> Float[Tensor, "B T D"]:
        return self.norm(self.own(events))


def ages_between(places: int, device: torch.device) -> Int[Tensor, "T T"]:
    """How many events before the first place the second one stands."""
    place = torch.arange(places, device=device)
    return place[:, None] - place
