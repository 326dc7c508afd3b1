"""Graph convolutions of accounts and items: capsules (GC²N), and their replacements in the ablations.

Shapes: N accounts, M items, A latent users, D capsule width, W embedding width, B accounts of a batch, T neighbours.
Internally accounts are sorted by degree, so that accounts of similar degree form blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lightgc2n.devices import device_of, has_kernels, has_matrix_kernels
from lightgc2n.errors import SettingError
from lightgc2n.graph.sequential import Edges, SequentialGraph
from lightgc2n.layers.sparse import WeightedSum, rows_of
from lightgc2n.layers.squash import squash
from lightgc2n.models.contract import NO_LATENT_USERS
from lightgc2n.models.lightgc2n.capsules import DynamicRouting, SumOfUsers, routing_weights
from lightgc2n.models.lightgc2n.item_attention import AttentionOfAllAccounts, attend

WIDEST_FIXED = 256  # most items of an account that every account of a batch is padded to
SHARPEST = 10.0  # bound of the learned scale in Eq. 5


@dataclass(frozen=True)
class Neighbourhood:
    """The accounts of a batch: their embeddings, and their distinct items, padded on the right."""

    start: Float[Tensor, "B W"]
    items: Int[Tensor, "B T"]
    known: Bool[Tensor, "B T"]
    account: Int[Tensor, "B"] | None = None  # given where the items are those of the training graph


class GraphNeighbours(nn.Module):
    """Looks up the items of accounts in the training graph."""

    held_offsets: Int[Tensor, "accounts_and_one"]
    held_items: Int[Tensor, "edges"]

    def __init__(self, graph: SequentialGraph) -> None:
        super().__init__()
        for name, array in graph.arrays().items():  # saved with the weights, which were learned on this graph
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)))
        self.widest = max(1, int(np.diff(graph.items_of_account.offsets).max(initial=0)))

    @property
    def has_fixed_width(self) -> bool:
        """Whether every batch is padded to the widest account, which avoids a synchronisation of GPU and host."""
        return device_of(self.held_items).is_gpu and self.widest <= WIDEST_FIXED

    def forward(self, account: Int[Tensor, "B"], embeddings: Float[Tensor, "N W"]) -> Neighbourhood:
        """The items of each account; an unseen account (-1) has none."""
        first = self.held_offsets[account.clamp(min=0)]
        stop = torch.where(account >= 0, self.held_offsets[account + 1], first)
        width = self.widest if self.has_fixed_width else max([1, *(stop - first).tolist()])
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
    """The three degree-normalised sums over neighbours that every convolution on M uses."""

    item_degrees: Float[Tensor, "M"]
    order: Int[Tensor, "N"]
    inverse: Int[Tensor, "N"]  # the position of each account in that order

    def __init__(self, graph: SequentialGraph) -> None:
        super().__init__()
        degrees = np.diff(graph.items_of_account.offsets)
        order = np.argsort(degrees, kind="stable")
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        held = _reordered(graph.items_of_account, order)
        self.held = held
        self.items_to_accounts = WeightedSum(held)
        self.accounts_to_items: nn.Module = WeightedSum(held.transposed())
        self.items_to_items = WeightedSum(graph.items_before_item)
        for name, array in (("order", order), ("inverse", inverse)):
            self.register_buffer(name, torch.from_numpy(array), persistent=False)
        item_degrees = graph.item_degrees.astype(np.float32)
        self.register_buffer("item_degrees", torch.from_numpy(item_degrees), persistent=False)

    def in_order(self, accounts: Float[Tensor, "N W"]) -> Float[Tensor, "N W"]:
        """The accounts sorted by degree."""
        return _Permute.apply(accounts, self.order, self.inverse)  # type: ignore[no-untyped-call]

    def of_neighbours(
        self, items: Float[Tensor, "M D"], neighbours: Neighbourhood
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B D"]]:
        """The neighbours of the accounts of a batch, and their normalised sum."""
        gathered = rows_of(items, neighbours.items)
        degree = neighbours.known.sum(dim=1, keepdim=True).clamp(min=1) * self.item_degrees[neighbours.items].clamp(
            min=1
        )
        weights = degree.rsqrt() * neighbours.known
        return gathered, (gathered * weights[..., None]).sum(dim=1)


class CapsuleConvolution(nn.Module):
    """GC²N: every account has several latent users, and attention assigns its items to them."""

    has_latent_users = True

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
        self.all_accounts = AttentionOfAllAccounts(graph.held)
        self.layers = nn.ModuleList(CapsuleLayer(width) for _ in range(layers))

    def _layers(self) -> Iterator["CapsuleLayer"]:
        return iter(self.layers)  # type: ignore[arg-type]

    def items(self, items: Float[Tensor, "M W"], accounts: Float[Tensor, "N W"]) -> list[Float[Tensor, "M D"]]:
        """The item capsules of every layer."""
        capsules = squash(self.to_items(items))  # Eq. 3
        users = squash(self.to_users(self.graph.in_order(accounts)))  # Eq. 4
        layers = [capsules]
        for number, layer in enumerate(self._layers(), start=1):
            following = layer.items(self.graph.accounts_to_items(users.sum(dim=1)), self.graph.items_to_items(capsules))
            if number < len(self.layers):  # the users of the last layer are computed for a batch alone
                summed, attended = self.all_accounts(users * layer.scale(), capsules)  # Eq. 5
                users = layer.users(summed, attended, users)
            capsules = following
            layers.append(capsules)
        return layers

    def users(self, neighbours: Neighbourhood, items: list[Float[Tensor, "M D"]]) -> Float[Tensor, "B A D"]:
        """The latent users of the accounts of a batch, summed over the layers."""
        users = squash(self.to_users(neighbours.start))  # Eq. 4
        total = users
        for layer, capsules in zip(self._layers(), items[:-1], strict=True):
            summed, attended = self._attend(users * layer.scale(), capsules, neighbours)
            users = layer.users(summed, attended, users)
            total = total + users  # Eq. 11
        return total

    def _attend(
        self, users: Float[Tensor, "B A D"], capsules: Float[Tensor, "M D"], neighbours: Neighbourhood
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B A D"]]:
        if neighbours.account is not None and has_kernels(users):
            from lightgc2n.layers.kernels.item_attention import attend_and_sum

            edges, edges_of_item = self.all_accounts.plain.sums, self.all_accounts.edges_of_item
            return attend_and_sum(users, capsules, edges, edges_of_item, self.graph.inverse[neighbours.account])
        gathered, summed = self.graph.of_neighbours(capsules, neighbours)
        return summed, attend(users, gathered, neighbours.known)[0]  # Eq. 5

    def accounts(self, neighbours: Neighbourhood, items: list[Float[Tensor, "M D"]]) -> Float[Tensor, "B D"]:
        """One vector for each account of a batch."""
        return self.routing(self.users(neighbours, items))  # Eq. 12 to 14

    def ownership(self, neighbours: Neighbourhood, items: list[Float[Tensor, "M D"]]) -> Float[Tensor, "B A T"]:
        """The attention of the last layer as the probability of each latent user for each item; sums to one over A."""
        users = squash(self.to_users(neighbours.start))
        weight = users.new_ones(*users.shape[:2], neighbours.items.shape[1])
        for layer, capsules in zip(self._layers(), items[:-1], strict=True):
            gathered, summed = self.graph.of_neighbours(capsules, neighbours)
            attended, weight = attend(users * layer.scale(), gathered, neighbours.known)
            users = layer.users(summed, attended, users)
        return weight / weight.sum(dim=1, keepdim=True).clamp(min=1e-30)

    def latent_users(
        self, neighbours: Neighbourhood, items: list[Float[Tensor, "M D"]]
    ) -> tuple[Float[Tensor, "B A T"], Float[Tensor, "B A"]]:
        """The ownership of each item, and the share of each latent user in the account."""
        return self.ownership(neighbours, items), routing_weights(self.routing.terms(self.users(neighbours, items)))


class CapsuleLayer(nn.Module):
    """One round of messages between latent users and items."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # Messages are summed before they are mapped, which is cheaper: W Σ x = Σ W x.
        self.from_items, self.from_matches, self.from_self, self.from_users, self.from_before = (
            nn.Linear(width, width, bias=False) for _ in range(5)
        )
        self.sharpness = nn.Parameter(torch.zeros(()))

    def scale(self) -> Float[Tensor, ""]:
        """The factor on the match of Eq. 5. Differs: squashed capsules match by less than 1, too little to be sharp."""
        return SHARPEST * torch.sigmoid(self.sharpness)

    def users(
        self, summed: Float[Tensor, "N D"], attended: Float[Tensor, "N A D"], users: Float[Tensor, "N A D"]
    ) -> Float[Tensor, "N A D"]:
        if has_matrix_kernels(users):
            from lightgc2n.layers.kernels.squashed_sum import squashed_sum

            maps = [self.from_items.weight, self.from_matches.weight, self.from_self.weight]
            return squashed_sum(maps, summed, attended.flatten(0, 1), users.flatten(0, 1)).view(users.shape)
        messages = self.from_items(summed)[:, None, :] + self.from_matches(attended)  # Eq. 6
        return squash(messages + self.from_self(users))  # Eq. 7, 8

    def items(self, from_users: Float[Tensor, "M D"], from_before: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
        if has_matrix_kernels(from_users):
            from lightgc2n.layers.kernels.squashed_sum import squashed_sum

            return squashed_sum([self.from_users.weight, self.from_before.weight], from_users, from_before)
        return squash(self.from_users(from_users) + self.from_before(from_before))  # Eq. 9, 10


class OneVectorAccounts(nn.Module):
    """The base of convolutions in which an account is one vector, without latent users."""

    has_latent_users = False

    def latent_users(
        self, neighbours: Neighbourhood, items: list[Float[Tensor, "M D"]]
    ) -> tuple[Float[Tensor, "B A T"], Float[Tensor, "B A"]]:
        raise SettingError(NO_LATENT_USERS)


class PlainConvolution(OneVectorAccounts):
    """Ablation of GC²N (w/o C): a graph convolution on the same M with one node for each account."""

    def __init__(self, graph: GraphSums, width: int, capsule_width: int, layers: int) -> None:
        super().__init__()
        self.graph = graph
        self.project = nn.Linear(width, capsule_width)
        self.layers = nn.ModuleList(nn.Linear(capsule_width, capsule_width, bias=False) for _ in range(layers))

    def items(self, items: Float[Tensor, "M W"], accounts: Float[Tensor, "N W"]) -> list[Float[Tensor, "M D"]]:
        node, account = self.project(items), self.project(self.graph.in_order(accounts))
        layers = [node]
        for layer in self.layers:
            following = layer(self.graph.accounts_to_items(account) + self.graph.items_to_items(node))
            account = layer(self.graph.items_to_accounts(node))
            node = following
            layers.append(node)
        return layers

    def accounts(self, neighbours: Neighbourhood, items: list[Float[Tensor, "M D"]]) -> Float[Tensor, "B D"]:
        total = self.project(neighbours.start)
        for layer, capsules in zip(self.layers, items[:-1], strict=True):
            total = total + layer(self.graph.of_neighbours(capsules, neighbours)[1])
        return total


class NoConvolution(OneVectorAccounts):
    """Ablation of GC²N and its graph (w/o A): projected embeddings."""

    def __init__(self, width: int, capsule_width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, capsule_width)

    def items(self, items: Float[Tensor, "M W"], accounts: Float[Tensor, "N W"]) -> list[Float[Tensor, "M D"]]:
        return [self.project(items)]

    def accounts(self, neighbours: Neighbourhood, items: list[Float[Tensor, "M D"]]) -> Float[Tensor, "B D"]:
        return self.project(neighbours.start)


def _reordered(edges: Edges, order: np.ndarray) -> Edges:
    """The same rows in another order."""
    degrees = np.diff(edges.offsets)[order]
    offsets = np.concatenate([[0], np.cumsum(degrees)])
    place = np.repeat(edges.offsets[:-1][order] - offsets[:-1], degrees) + np.arange(offsets[-1])
    return Edges(offsets, edges.columns[place], edges.weights[place], edges.width)
