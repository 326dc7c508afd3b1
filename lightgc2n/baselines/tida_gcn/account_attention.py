"""The account-aware attention of TiDA-GCN over a history, and the pooling over latent users.

Shapes: B batch, X events of one domain, H latent users, W width of one, D = H · W, F = 2 · W, G heads.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

EPSILON = 1e-8  # added to every variance
FROM_GRAPH, FROM_ATTENTION = 0.9, 0.1  # fixed weights of both parts, from the authors


def norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=EPSILON)


class AccountBlock(nn.Module):
    """The account attends to the events up to each place; then a feed-forward layer."""

    def __init__(self, width: int, inner: int, heads: int, drop: float) -> None:
        super().__init__()
        self.heads, self.drop = heads, drop
        self.asking_norm, self.mixed_norm = norm(width), norm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, account: Float[Tensor, "B D"], events: Float[Tensor, "B X D"]) -> Float[Tensor, "B X D"]:
        query_vector = self.asking_norm(account)[:, None]  # q̄, the same at every event
        shares = dropout(self.shares(query_vector, events), self.drop, self.training)
        values = self._by_head(relu(self.value(events)))
        attended = (shares @ values).transpose(1, 2).flatten(2)
        mixed = self.mixed_norm(query_vector + attended)  # ō
        return mixed + self.outer(relu(self.inner(mixed)))  # κ

    def shares(self, query_vector: Float[Tensor, "B 1 D"], events: Float[Tensor, "B X D"]) -> Float[Tensor, "B G X X"]:
        """The causal attention weights; padding comes after all events, so the causal mask excludes it."""
        query, key = self._by_head(relu(self.query(query_vector))), self._by_head(relu(self.key(events)))
        match = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5  # one row: the query is the same at every event
        size = events.shape[1]
        later = torch.ones(size, size, dtype=torch.bool, device=events.device).triu(1)
        return match.expand(-1, -1, size, -1).masked_fill(later, -torch.inf).softmax(dim=-1)  # a

    def _by_head(self, vectors: Float[Tensor, "B Y D"]) -> Float[Tensor, "B G Y _"]:
        return vectors.view(*vectors.shape[:2], self.heads, -1).transpose(1, 2)


class LatentUserPooling(nn.Module):
    """One vector of the latent users, weighted by their fit to the newest event."""

    def __init__(self, width: int, smoothing: float) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.fit_norm, self.pooled_norm = norm(width), norm(width)
        self.weight, self.bias = nn.Parameter(torch.empty(width, width)), nn.Parameter(torch.empty(1, width))
        self.direction = nn.Parameter(torch.ones(width, 1))  # g

    def forward(self, users: Float[Tensor, "B H W"], last: Float[Tensor, "B W"]) -> Float[Tensor, "B W"]:
        exponents = self.log_shares(users, last)
        # Differs: weights above one are scaled down together, to avoid overflow; the norm removes any scale.
        shares = (exponents - relu(exponents.amax(dim=1, keepdim=True))).exp()
        return self.pooled_norm((shares * users).sum(dim=1))  # p

    def log_shares(self, users: Float[Tensor, "B H W"], last: Float[Tensor, "B W"]) -> Float[Tensor, "B H 1"]:
        """log(exp(ω) / (Σ exp(ω))^β), whose exponentials do not sum to one."""
        fit = torch.tanh(self.fit_norm(users * last[:, None]) @ self.weight + self.bias) @ self.direction  # ω
        return fit - self.smoothing * fit.logsumexp(dim=1, keepdim=True)


class AccountReader(nn.Module):
    """The features of one domain's history and the account."""

    def __init__(
        self, width: int, latent_users: int, longest: int, blocks: int, heads: int, smoothing: float, drop: float
    ) -> None:
        super().__init__()
        whole = latent_users * width
        self.latent_users, self.drop = latent_users, drop
        self.positions = nn.Parameter(torch.empty(longest, whole))
        self.blocks = nn.ModuleList(AccountBlock(whole, 2 * width, heads, drop) for _ in range(blocks))
        self.read_norm, self.item_norm, self.account_norm = norm(whole), norm(whole), norm(whole)
        self.pooling = LatentUserPooling(width, smoothing)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1 and not name.endswith("direction"):
                nn.init.xavier_uniform_(parameter)
            elif name.split(".")[-2:] in [[part, "bias"] for part in ("query", "key", "value", "inner", "outer")]:
                nn.init.zeros_(parameter)

    def forward(
        self, items: Float[Tensor, "B X D"], account: Float[Tensor, "B D"], known: Bool[Tensor, "B X"]
    ) -> Float[Tensor, "B F"]:
        there = known[..., None]
        events = self._dropped(items + self.positions[: items.shape[1]]) * there  # κ⁰
        for block in self.blocks:
            events = block(account, events) * there
        read = self._by_user(self.read_norm(events)) * there[..., None]  # ρ
        last = (known.sum(dim=1) - 1).clamp(min=0)
        newest = read[torch.arange(len(last), device=last.device), last].mean(dim=1)  # λ
        pooled = self.pooling(read.sum(dim=1), newest) * known.any(dim=1, keepdim=True)
        listed = (self._by_user(self.item_norm(items)).mean(dim=2) * there).sum(dim=1)
        sequence = FROM_GRAPH * listed + FROM_ATTENTION * pooled  # s
        query_vector = self._by_user(self.account_norm(account)[:, None]).mean(dim=2)[:, 0]
        return self._dropped(torch.cat([sequence, known.sum(dim=1, keepdim=True) * query_vector], dim=1))  # [s ; c̄]

    def _by_user(self, vectors: Float[Tensor, "B X D"]) -> Float[Tensor, "B X H W"]:
        return vectors.view(*vectors.shape[:2], self.latent_users, -1)

    def _dropped(self, vectors: Tensor) -> Tensor:
        return dropout(vectors, self.drop, self.training)
