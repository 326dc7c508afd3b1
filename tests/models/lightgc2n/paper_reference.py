"""LightGC²N in plain numpy loops, written from the paper's equations and the readings in docs/equations.md.

Nothing of the package is imported: the reference reads the tensors of a model by name and computes every node, edge and
event by itself in float64. It covers Eq. 2 to 22 and the six ablations, without dropout.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass
class Reference:
    """The model on training logs.

    Args:
        tensors: the saved tensors of the model.
        config: its settings.
        variant: the ablation: "", "la", "dr", "c", "cl", "s" or "a".
        logs: the training events of each account; account k has logs[k].
        items: the size of the catalogue.
    """

    tensors: Mapping[str, Array]
    config: Any
    variant: str
    logs: Sequence[Sequence[int]]
    items: int
    held: list[set[int]] = field(init=False)  # account -> its distinct items
    before: list[set[int]] = field(init=False)  # item -> the distinct items that came just before it

    def __post_init__(self) -> None:
        self.held = [set(log) for log in self.logs]  # Eq. 2, M_I
        self.before = [set() for _ in range(self.items)]  # Eq. 2, M_S
        for log in self.logs:
            for first, second in pairwise(log):
                self.before[second].add(first)

    # The graph, normalised by degree ("Laplace matrix" of Algorithm 1)

    def holders(self, item: int) -> list[int]:
        return [account for account, held in enumerate(self.held) if item in held]

    def account_weight(self, degree: int, item: int) -> float:
        return 1 / math.sqrt(max(degree, 1) * max(len(self.holders(item)), 1))

    def step_weight(self, first: int, second: int) -> float:
        following = sum(first in before for before in self.before)
        return 1 / math.sqrt(len(self.before[second]) * following)

    # Capsules and the layers of the convolution

    def tensor(self, name: str) -> Array:
        return self.tensors[name].astype(np.float64)

    def first_items(self) -> list[Array]:
        """Item capsules of layer 0."""
        embeddings = self.tensor("item_embeddings")
        if self.variant in ("c", "a"):
            return [linear(self, "convolution.project", row) for row in embeddings]
        if self.variant == "la":
            return [squash(linear(self, "convolution.to_items.convolve.project", row)) for row in embeddings]
        width = embeddings.shape[1]
        keys = np.zeros((width, width))
        for row in embeddings:
            for i in range(width):
                for j in range(width):
                    keys[i, j] += row[i] * row[j]
        attention = [softmax(line / math.sqrt(width)) for line in keys]
        mixed = [sum(row[i] * attention[i] for i in range(width)) for row in embeddings]
        return [squash(linear(self, "convolution.to_items.project", row)) for row in mixed]  # Eq. 3

    def first_users(self, start: Array) -> list[Array]:
        """The latent users of one account at layer 0; a plain convolution has one node for each account."""
        if self.variant in ("c", "a"):
            return [linear(self, "convolution.project", start)]
        stacked = linear(self, "convolution.to_users.project", start)
        return [squash(part) for part in np.split(stacked, self.config.latent_users)]  # Eq. 4

    def next_users(self, layer: int, users: list[Array], neighbours: set[int], items: list[Array]) -> list[Array]:
        """The latent users of one account after a layer."""
        weights = {item: self.account_weight(len(neighbours), item) for item in neighbours}
        summed = sum((weights[item] * items[item] for item in neighbours), np.zeros_like(items[0]))
        if self.variant == "c":
            return [self.tensor(f"convolution.layers.{layer}.weight") @ summed]
        matrix = {name: self.tensor(f"convolution.layers.{layer}.{name}.weight") for name in MAPS}
        scale = 10 / (1 + math.exp(-float(self.tensor(f"convolution.layers.{layer}.sharpness"))))
        result = []
        for user in users:
            match = {item: scale * float(user @ items[item]) for item in neighbours}
            halves = sum(math.sqrt(math.exp(value)) for value in match.values())
            message = np.zeros_like(user)
            for item in neighbours:
                attention = math.exp(match[item]) / halves  # Eq. 5
                plain = matrix["from_items"] @ (weights[item] * items[item])
                message = message + plain + matrix["from_matches"] @ (attention * items[item])  # Eq. 6
            own = matrix["from_self"] @ user  # Eq. 7
            result.append(squash(message + own))  # Eq. 8
        return result

    def next_items(self, layer: int, items: list[Array], users: list[list[Array]]) -> list[Array]:
        """The item capsules after a layer."""
        prefix = f"convolution.layers.{layer}"
        if self.variant == "c":
            from_users = from_before = self.tensor(f"{prefix}.weight")
        else:
            from_users, from_before = (self.tensor(f"{prefix}.{name}.weight") for name in ("from_users", "from_before"))
        result = []
        for item in range(self.items):
            message = np.zeros_like(items[0])
            for account in self.holders(item):
                for user in users[account]:
                    message = message + from_users @ (self.account_weight(len(self.held[account]), item) * user)
            for first in self.before[item]:
                message = message + from_before @ (self.step_weight(first, item) * items[first])  # Eq. 9
            result.append(message if self.variant == "c" else squash(message))  # Eq. 10
        return result

    def item_layers(self) -> list[list[Array]]:
        """The item capsules of every layer."""
        layers = [self.first_items()]
        if self.variant == "a":
            return layers
        users = [self.first_users(start) for start in self.tensor("account_embeddings")]
        for layer in range(self.config.layers):
            items = layers[-1]
            layers.append(self.next_items(layer, items, users))
            users = [self.next_users(layer, own, self.held[a], items) for a, own in enumerate(users)]
        return layers

    def account(self, start: Array, neighbours: set[int], layers: list[list[Array]]) -> Array:
        """The vector of one account that has these neighbours."""
        users = self.first_users(start)
        total = users
        for layer, items in enumerate(layers[:-1]):
            users = self.next_users(layer, users, neighbours, items)
            total = [one + other for one, other in zip(total, users, strict=True)]  # Eq. 11
        if self.variant in ("c", "a", "dr"):
            return sum(total[1:], total[0])
        coupling = list(self.tensor("convolution.routing.start"))
        agree = self.tensor("convolution.routing.agree.weight")
        account = np.zeros_like(total[0])
        for _ in range(self.config.routing_steps):
            account = sum((squash(b * user) for b, user in zip(coupling, total, strict=True)), np.zeros_like(account))
            coupling = [b + agree @ (user * account) for b, user in zip(coupling, total, strict=True)]  # Eq. 12, 13
        return account

    # Subspace alignment, sequences and losses

    def aligned(self, item: Array) -> tuple[Array, Array]:
        """The refined item, and its row in a sequence."""
        if self.variant in ("s", "a"):
            return item, item
        bases, smoothing = self.tensor("alignment.bases"), self.config.smoothing
        strength = [float(item @ base) ** 2 + smoothing * len(base) for base in bases]
        affinity = [one / sum(strength) for one in strength]  # Eq. 15
        shares = zip(affinity, bases, strict=True)
        refined = sum((s * float(item @ base) / float(base @ base) * base for s, base in shares), np.zeros_like(item))
        both = item / np.linalg.norm(item) + self.tensor("alignment.mix.weight") @ refined  # Eq. 16
        centred = both - both.mean()
        normed = centred / math.sqrt(float((centred**2).mean()) + 1e-5)
        return refined, normed * self.tensor("alignment.norm.weight") + self.tensor("alignment.norm.bias")  # Eq. 19

    def encoded(self) -> tuple[list[list[Array]], list[Array], list[Array], list[Array]]:
        """The item capsules of every layer, their sum, the refined items and the rows of a sequence."""
        layers = self.item_layers()
        items = [np.sum([layer[item] for layer in layers], axis=0) for item in range(self.items)]  # Eq. 11
        refined, rows = zip(*(self.aligned(item) for item in items), strict=True)
        return layers, items, list(refined), list(rows)

    def sequence(self, rows: list[Array], log: Sequence[int]) -> Array:
        """One vector of a history."""
        if not log:
            return np.zeros_like(rows[0])
        total = np.sum([rows[item] for item in log], axis=0)  # Eq. 14
        return total / len(log) if self.config.pooling == "mean" else total

    def logits(self, sequence: Array, account: Array) -> Array:
        both = np.concatenate([sequence, account])
        return self.tensor("head.weight") @ both + self.tensor("head.bias")  # Eq. 20, before the softmax

    def scores(self, account: int, history: Sequence[int]) -> Array:
        """The scores of all items for a known account: its neighbours are its training items and the history."""
        layers, _, _, rows = self.encoded()
        vector = self.account(self.tensor("account_embeddings")[account], self.held[account] | set(history), layers)
        return self.logits(self.sequence(rows, history), vector)  # Eq. 1

    def losses(self) -> dict[str, float]:
        """Both terms of the loss over all training logs, every event but the first a target."""
        layers, items, refined, rows = self.encoded()
        starts = self.tensor("account_embeddings")
        next_item, contrast = [], []
        events = [item for log in self.logs for item in log[:-1]]
        negatives = range(self.items) if self.config.negatives == "all" else sorted(set(events))
        for number, log in enumerate(self.logs):
            if len(log) < 2:
                continue
            account = self.account(starts[number], self.held[number], layers)
            for place in range(1, len(log)):
                shares = softmax(self.logits(self.sequence(rows, log[:place]), account))
                next_item.append(-math.log(shares[log[place]]))  # Eq. 21
            for item in log[:-1]:
                direction = items[item] / np.linalg.norm(items[item])
                match = {other: float(direction @ refined[other]) / self.config.temperature for other in negatives}
                total = sum(math.exp(value) for value in match.values())
                contrast.append(-math.log(math.exp(match[item]) / total))  # Eq. 17
        terms = {"next_item": float(np.mean(next_item))}
        if self.variant not in ("cl", "s", "a"):
            terms["contrast"] = self.config.contrast_weight * float(np.mean(contrast))  # Eq. 18
        return terms  # Eq. 22


MAPS = ("from_items", "from_matches", "from_self")


def squash(vector: Array) -> Array:
    square = float(vector @ vector)
    return vector * (math.sqrt(square) / (1 + square))


def softmax(values: Array) -> Array:
    exponentials = np.array([math.exp(value - max(values)) for value in values])
    return exponentials / exponentials.sum()


def linear(reference: Reference, name: str, vector: Array) -> Array:
    return reference.tensor(f"{name}.weight") @ vector + reference.tensor(f"{name}.bias")
