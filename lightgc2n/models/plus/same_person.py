"""Who acts now: learned subspaces assign events to latent users, and a state sums up the person who acts.

Shapes: B logs, T longest log, A latent users, H views, D width.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, layer_norm, normalize

SHARPNESS = 5.0  # initial inverse temperature of the softmax over latent users


class SamePerson(nn.Module):
    """The probability that two events are of the same latent user, in several views.

    Each view has one direction per latent user; an event belongs to them by the softmax of its cosines.
    """

    has_latent_users = True

    def __init__(self, views: int, latent_users: int, width: int) -> None:
        super().__init__()
        self.bases = nn.Parameter(torch.randn(views, latent_users, width))
        self.sharpness = nn.Parameter(torch.zeros(views))

    def ownership(self, events: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T A"]:
        """The probability of each latent user for each event; the last axis sums to one."""
        cosines = torch.einsum("btd,had->bhta", normalize(events, dim=-1), normalize(self.bases, dim=-1))
        return torch.softmax(SHARPNESS * self.sharpness.exp()[:, None, None] * cosines, dim=-1)

    def forward(self, events: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B H T T"], Float[Tensor, "B T T"]]:
        """The probability in each view, and the mean over the views."""
        ownership = self.ownership(events)
        joined = ownership.transpose(1, 2).flatten(2)  # a mean of products is one product: no pass over all views
        return ownership @ ownership.mT, joined / len(self.bases) @ joined.mT


class OnePerson(nn.Module):
    """Ablation of `SamePerson`: all events are of one person."""

    has_latent_users = False

    def __init__(self, views: int) -> None:
        super().__init__()
        self.views = views

    def ownership(self, events: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T 1"]:
        return events.new_ones(len(events), self.views, events.shape[1], 1)

    def forward(self, events: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B H T T"], Float[Tensor, "B T T"]]:
        logs, places = events.shape[:2]
        likeness = torch.ones(logs, self.views, places, places, device=events.device)
        return likeness, likeness[:, 0]


class PersonState(nn.Module):
    """The state of the person who acts now: a mean over their events, weighted by likeness and by age.

    Each view has a learned weight for every age, and starts with its own rate of decay.
    """

    def __init__(self, width: int, views: int, longest: int, drop: float) -> None:
        super().__init__()
        self.drop, self.width, self.views = drop, width, views
        rates = torch.linspace(0.1, 1.5, views)[:, None]
        self.fading = nn.Parameter(-rates * torch.arange(1, longest + 1).log())  # [views, ages]
        self.own, self.value = nn.Linear(width, width), nn.Linear(width, views * width, bias=False)
        self.gather = nn.Linear(views * width, width)
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        nn.init.normal_(self.outer.weight, std=0.02)  # close to 0, so that the residual block starts near the identity
        self.norm = nn.LayerNorm(width)

    def forward(
        self,
        events: Float[Tensor, "B T D"],
        likeness: Float[Tensor, "B H T T"],
        kept: tuple[Bool[Tensor, "B T _"], ...] = (),
    ) -> Float[Tensor, "B T D"]:
        """The state after every event; it depends on no later event, so padding needs no mask.

        Args:
            kept: the dropout masks of `draw_kept`; drawn here if empty.
        """
        kept_events, kept_pooled, kept_hidden = kept or (None, None, None)
        events = self._dropped(events, kept_events)
        logs, places = events.shape[:2]
        values = self.value(events).view(logs, places, self.views, self.width).transpose(1, 2)
        weights = self.weights(likeness)
        pooled = (weights @ values / weights.sum(dim=-1, keepdim=True)).transpose(1, 2).flatten(2)
        state = self.own(events) + self.gather(self._dropped(pooled, kept_pooled))
        hidden = self._dropped(torch.relu(self.inner(layer_norm(state, (self.width,)))), kept_hidden)
        return self.norm(state + self.outer(hidden))

    def weights(self, likeness: Float[Tensor, "B H T T"]) -> Float[Tensor, "B H T T"]:
        """The weight of each event and of each earlier one in the mean, before they are divided by their sum."""
        ages = ages_between(likeness.shape[-1], likeness.device)
        return likeness * (self.fading.exp()[:, ages.clamp(min=0)] * (ages >= 0))

    def draw_kept(self, logs: int, places: int) -> tuple[Bool[Tensor, "B T _"], ...]:
        """The dropout masks of the events, the pooled values and the hidden layer for a whole batch.

        On a CPU these are the draws that `dropout` would make, so blocks of any size train the same weights.
        """
        if not self.training or not self.drop:
            return ()
        widths = (self.width, self.views * self.width, 2 * self.width)
        tables = [torch.empty(logs, places, width, dtype=torch.bool, device=self.fading.device) for width in widths]
        return tuple(table.bernoulli_(1 - self.drop) for table in tables)

    def _dropped(self, vectors: Tensor, kept: Bool[Tensor, "B T _"] | None) -> Tensor:
        if kept is None:
            return dropout(vectors, self.drop, self.training)
        return vectors * (kept / (1 - self.drop))


class NewestEventState(nn.Module):
    """Ablation of `PersonState`: the state is a map of the newest event."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(
        self,
        events: Float[Tensor, "B T D"],
        likeness: Float[Tensor, "B H T T"],
        kept: tuple[Bool[Tensor, "B T _"], ...] = (),
    ) -> Float[Tensor, "B T D"]:
        return self.norm(self.own(events))

    def draw_kept(self, logs: int, places: int) -> tuple[Bool[Tensor, "B T _"], ...]:
        """No dropout."""
        return ()


def ages_between(places: int, device: torch.device) -> Int[Tensor, "T T"]:
    """The age of the second place seen from the first, in events; negative for later places."""
    place = torch.arange(places, device=device)
    return place[:, None] - place
