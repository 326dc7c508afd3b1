"""Graph convolutions of accounts and items: capsules (GC²N), and what stands in its place in the ablations.

Shapes: N accounts, M items, A latent users, D capsule width, W embedding width, B accounts at hand, T neighbours.
Inside, accounts stand in the order of their degrees, so that the fast layers can take them in blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lightgc2n.graph.sequential import Edges, SequentialGraph
from lightgc2n.layers.capsules import DynamicRouting, SumOfUsers, routing_weights, squash
from lightgc2n.layers.gpu import has_kernels, has_matrix_kernels
from lightgc2n.layers.propagation import EveryAccountListens, WeightedSum, attend, rows_of

WIDEST_FIXED = 256  # items of an account
SHARPEST = 10.0  # bound of the learned scale in Eq. 5: e^10 between the best and the worst match is sharp enough


@dataclass(frozen=True)
class Neighbourhood:
    """Accounts at hand: where they start, and the distinct items they hold, padded on the right."""

    start: Float[Tensor, "B W"]
    items: Int[Tensor, "B T"]
    known: Bool[Tensor, "B T"]
    account: Int[Tensor, "B"] | None = None  # where these are just the items that the graph gives the account


class GraphNeighbours(nn.Module):
    """Which items the training graph gives an account."""

    held_offsets: Int[Tensor, "accounts_and_one"]
    held_items: Int[Tensor, "edges"]

    def __init__(self, graph: SequentialGraph) -> None:
        super().__init__()
        for name, array in graph.arrays().items():  # saved with the weights: what was learned belongs to this graph
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)))
        self.widest = max(1, int(np.diff(graph.items_of_account.offsets).max(initial=0)))

    @property
    def fixed(self) -> bool:
        """Whether every account is padded to the widest: a GPU then need not ask the host how wide a batch is."""
        return self.held_items.is_cuda and self.widest <= WIDEST_FIXED

    def forward(self, account: Int[Tensor, "B"], embeddings: Float[Tensor, "N W"]) -> Neighbourhood:
        """What the graph gives each account; account -1 gets no items."""
        first = self.held_offsets[account.clamp(min=0)]
        stop = torch.where(account >= 0, self.held_offsets[account + 1], first)
        width = self.widest if self.fixed else max(1, int((stop - first).max()))
        place = first[:, None] + torch.arange(width, device=account.device)
        known = place < stop[:, None]
        items = self.held_items[torch.where(known, place, 0)] if len(self.held_items) else torch.zeros_like(place)
        return Neighbourhood(rows_of(embeddings, account.clamp(min=0)), items * known, known, account)


class _Permute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return table.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return gradients[0].index_select(0, ctx.saved_tensors[0]), None, None


class GraphSums(nn.Module):
    """The three sums over neighbours that every convolution on M uses, normalised by degree."""

    item_degrees: Float[Tensor, "M"]
    order: Int[Tensor, "N"]
    inverse: Int[Tensor, "N"]  # where each account stands in that order

    def __init__(self, graph: SequentialGraph) -> None:
        super().__init__()
        degrees = np.diff(graph.items_of_account.offsets)
        order = np.argsort(degrees, kind="stable")
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        held = _reordered(graph.items_of_account, order)
        self.held = held
        self.items_to_accounts = WeightedSum(held)
        self.accounts_to_items = WeightedSum(held.transposed())
        self.items_to_items = WeightedSum(graph.items_before_item)
        for name, array in (("order", order), ("inverse", inverse)):
            self.register_buffer(name, torch.from_numpy(array), persistent=False)
        item_degrees = np.diff(graph.accounts_of_item.offsets).astype(np.float32)
        self.register_buffer("item_degrees", torch.from_numpy(item_degrees), persistent=False)

    def in_order(self, accounts: Float[Tensor, "N W"]) -> Float[Tensor, "N W"]:
        """The accounts in the order of their degrees."""
        return _Permute.apply(accounts, self.order, self.inverse)  # type: ignore[no-untyped-call]

    def of_neighbours(
        self, items: Float[Tensor, "M D"], near: Neighbourhood
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B D"]]:
        """The neighbours of the accounts at hand, and their normalised sum."""
        gathered = rows_of(items, near.items)
        degree = near.known.sum(dim=1, keepdim=True).clamp(min=1) * self.item_degrees[near.items].clamp(min=1)
        weights = degree.rsqrt() * near.known
        return gathered, (gathered * weights[..., None]).sum(dim=1)


class CapsuleConvolution(nn.Module):
    """GC²N: every account is several latent users, and attention finds which item is whose."""

    def __init__(
        self,
        graph: GraphSums,
        to_items: nn.Module,
        to_users: nn.Module,
        routing: DynamicRouting | SumOfUsers,
        width: int,
        layers: int,
    ) -> None:
        super().__init__()
        self.graph, self.to_items, self.to_users, self.routing = graph, to_items, to_users, routing
        self.everybody = EveryAccountListens(graph.held)
        self.layers = nn.ModuleList(CapsuleLayer(width) for _ in range(layers))

    def _rounds(self) -> Iterator["CapsuleLayer"]:
        return iter(self.layers)  # type: ignore[arg-type]

    def items(self, items: Float[Tensor, "M W"], accounts: Float[Tensor, "N W"]) -> list[Float[Tensor, "M D"]]:
        """The item capsules of every layer."""
        capsules = squash(self.to_items(items))  # Eq. 3
        users = squash(self.to_users(self.graph.in_order(accounts)))  # Eq. 4
        found = [capsules]
        for number, layer in enumerate(self._rounds(), start=1):
            following = layer.items(self.graph.accounts_to_items(users.sum(dim=1)), self.graph.items_to_items(capsules))
            if number < len(self.layers):  # the last layer's users are needed for the accounts at hand alone
                summed, heard = self.everybody(users * layer.scale(), capsules)  # Eq. 5
                users = layer.users(summed, heard, users)
            capsules = following
            found.append(capsules)
        return found

    def users(self, near: Neighbourhood, items: list[Float[Tensor, "M D"]]) -> Float[Tensor, "B A D"]:
        """The latent users of the accounts at hand, summed over the layers."""
        users = squash(self.to_users(near.start))  # Eq. 4
        total = users
        for layer, capsules in zip(self._rounds(), items[:-1], strict=True):
            summed, heard = self._listen(users * layer.scale(), capsules, near)
            users = layer.users(summed, heard, users)
            total = total + users  # Eq. 11
        return total

    def _listen(
        self, users: Float[Tensor, "B A D"], capsules: Float[Tensor, "M D"], near: Neighbourhood
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B A D"]]:
        if near.account is not None and has_kernels(users):
            from lightgc2n.layers.kernels import listening

            return listening.listen(users, capsules, self.everybody, self.graph.inverse[near.account])
        gathered, summed = self.graph.of_neighbours(capsules, near)
        return summed, attend(users, gathered, near.known)[0]  # Eq. 5

    def accounts(self, near: Neighbourhood, items: list[Float[Tensor, "M D"]]) -> Float[Tensor, "B D"]:
        """One vector for each account at hand."""
        return self.routing(self.users(near, items))  # Eq. 12 to 14

    def ownership(self, near: Neighbourhood, items: list[Float[Tensor, "M D"]]) -> Float[Tensor, "B A T"]:
        """For each item of an account how far it is each latent user's, read off the last layer; sums to one over A."""
        users = squash(self.to_users(near.start))
        weight = users.new_ones(*users.shape[:2], near.items.shape[1])
        for layer, capsules in zip(self._rounds(), items[:-1], strict=True):
            gathered, summed = self.graph.of_neighbours(capsules, near)
            heard, weight = attend(users * layer.scale(), gathered, near.known)
            users = layer.users(summed, heard, users)
        return weight / weight.sum(dim=1, keepdim=True).clamp(min=1e-30)

    def latent_users(
        self, near: Neighbourhood, items: list[Float[Tensor, "M D"]]
    ) -> tuple[Float[Tensor, "B A T"], Float[Tensor, "B A"]]:
        """The ownership of each item, and how much of the account each latent user is."""
        return self.ownership(near, items), routing_weights(self.routing.terms(self.users(near, items)))


class CapsuleLayer(nn.Module):
    """One round of messages between latent users and items."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # Sums come first and weights after them, which is the same and cheaper: W Σ x = Σ W x.
        self.from_items, self.from_matches, self.from_self, self.from_users, self.from_before = (
            nn.Linear(width, width, bias=False) for _ in range(5)
        )
        self.sharpness = nn.Parameter(torch.zeros(()))

    def scale(self) -> Float[Tensor, ""]:
        """The factor on the match of Eq. 5. Differs: squashed capsules match by less than 1, too little to be sharp."""
        return SHARPEST * torch.sigmoid(self.sharpness)

    def users(
        self, summed: Float[Tensor, "N D"], heard: Float[Tensor, "N A D"], users: Float[Tensor, "N A D"]
    ) -> Float[Tensor, "N A D"]:
        if has_matrix_kernels(users):
            from lightgc2n.layers.kernels import blending

            maps = [self.from_items.weight, self.from_matches.weight, self.from_self.weight]
            return blending.blend(maps, summed, heard.flatten(0, 1), users.flatten(0, 1)).view(users.shape)
        messages = self.from_items(summed)[:, None, :] + self.from_matches(heard)  # Eq. 6
        return squash(messages + self.from_self(users))  # Eq. 7, 8

    def items(self, from_users: Float[Tensor, "M D"], from_before: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
        if has_matrix_kernels(from_users):
            from lightgc2n.layers.kernels import blending

            return blending.blend([self.from_users.weight, self.from_before.weight], from_users, from_before)
        return squash(self.from_users(from_users) + self.from_before(from_before))  # Eq. 9, 10


class PlainConvolution(nn.Module):
    """In place of GC²N (w/o C): a graph convolution on the same M with one node for each account."""

    def __init__(self, graph: GraphSums, width: int, capsule_width: int, layers: int) -> None:
        super().__init__()
        self.graph = graph
        self.project = nn.Linear(width, capsule_width)
        self.layers = nn.ModuleList(nn.Linear(capsule_width, capsule_width, bias=False) for _ in range(layers))

    def items(self, items: Float[Tensor, "M W"], accounts: Float[Tensor, "N W"]) -> list[Float[Tensor, "M D"]]:
        node, account = self.project(items), self.project(self.graph.in_order(accounts))
        found = [node]
        for layer in self.layers:
            following = layer(self.graph.accounts_to_items(account) + self.graph.items_to_items(node))
            account = layer(self.graph.items_to_accounts(node))
            node = following
            found.append(node)
        return found

    def accounts(self, near: Neighbourhood, items: list[Float[Tensor, "M D"]]) -> Float[Tensor, "B D"]:
        total = self.project(near.start)
        for layer, capsules in zip(self.layers, items[:-1], strict=True):
            total = total + layer(self.graph.of_neighbours(capsules, near)[1])
        return total

    def latent_users(self, near: Neighbourhood, items: list[Float[Tensor, "M D"]]) -> None:
        """Nobody: here an account is one vector."""


class NoConvolution(nn.Module):
    """In place of GC²N and its graph (w/o A): the embeddings themselves."""

    def __init__(self, width: int, capsule_width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, capsule_width)

    def items(self, items: Float[Tensor, "M W"], accounts: Float[Tensor, "N W"]) -> list[Float[Tensor, "M D"]]:
        return [self.project(items)]

    def accounts(self, near: Neighbourhood, items: list[Float[Tensor, "M D"]]) -> Float[Tensor, "B D"]:
        return self.project(near.start)

    def latent_users(self, near: Neighbourhood, items: list[Float[Tensor, "M D"]]) -> None:
        """Nobody: here an account is one vector."""


def _reordered(edges: Edges, order: np.ndarray) -> Edges:
    """The same rows in another order."""
    degrees = np.diff(edges.offsets)[order]
    offsets = np.concatenate([[0], np.cumsum(degrees)])
    place = np.repeat(edges.offsets[:-1][order] - offsets[:-1], degrees) + np.arange(offsets[-1])
    return Edges(offsets, edges.columns[place], edges.weights[place], edges.width)
