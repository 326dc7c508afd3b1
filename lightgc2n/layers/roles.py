"""PSJNet-II's way from one domain to the other: a state for every role behind the account, joined by two attentions.

Shapes: B logs, X events of the source, Y of the target, Q questions, K roles, H width of a state.
A question sees the events before it alone, so all questions of a log can be answered in one pass.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, pad

from lightgc2n.layers.gated import GatedUnit, drawn

TINY = 1e-10


class SplitUnit(nn.Module):
    """Roles with a state each that compete, feature by feature, with each other and with what was there before."""

    def __init__(self, width: int, roles: nn.Module) -> None:
        super().__init__()
        self.width, self.roles = width, roles
        self.gate = drawn(3 * width, width)  # W_f, rows of p, q and s
        self.gate_bias = nn.Parameter(torch.ones(width))
        self.candidate = drawn(2 * width, width)  # W_c, rows of p and s
        self.candidate_bias = nn.Parameter(torch.ones(width))
        self.nobody = drawn(2 * width, width)  # W_n, rows of p and q
        self.nobody_state = drawn(width, width)  # N_1
        self.nobody_roles = drawn(len(roles()[0]), width)  # n
        self.nobody_bias = nn.Parameter(torch.ones(width))

    def forward(
        self,
        own: Float[Tensor, "B X H"],
        other: Float[Tensor, "B X H"],
        start: Float[Tensor, "B K H"] | None = None,
    ) -> Float[Tensor, "B X K H"]:
        """The states of all roles after every event of the source.

        Args:
            own: the source's state at the event, p.
            other: the target's state when the event came, q.
            start: the states before the first event, s_0; zeros if they are not given.
        """
        of_roles = torch.cat(self.roles(), dim=1)
        of_state = torch.cat([self.gate[2 * self.width :], self.candidate[self.width :], self.nobody_state], dim=1)
        state, states = own.new_zeros(len(own), *self.nobody_roles.shape) if start is None else start, []
        for given, nobody_given in zip(*self._given(own, other), strict=True):
            gate, candidate, keep = (state @ of_state).chunk(3, dim=-1)
            given_gate, given_candidate = (given[:, None] + of_roles).chunk(2, dim=-1)
            gate = (gate + given_gate).sigmoid()  # f̃ = σ([p ; q ; s_k] W_f + r_k V_f + b_f)
            nobody = (nobody_given + (keep * self.nobody_roles).sum(dim=1)).sigmoid()[:, None]  # g̃, common to all roles
            candidate = (candidate + given_candidate).tanh()  # c = tanh([p ; s_k] W_c + r_k V_c + b_c)
            total = gate.sum(dim=1, keepdim=True) + nobody + TINY  # z
            state = (gate * candidate + nobody * state) / total  # s_k = f_k ⊙ c_k + g ⊙ s_k
            states.append(state)
        return torch.stack(states, dim=1)

    def _given(
        self, own: Float[Tensor, "B X H"], other: Float[Tensor, "B X H"]
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """What does not depend on the states, event by event: for gate and candidate, and for nobody's gate."""
        both = torch.cat([own, other], dim=-1).transpose(0, 1)
        gate = both @ self.gate[: 2 * self.width] + self.gate_bias
        candidate = own.transpose(0, 1) @ self.candidate[: self.width] + self.candidate_bias
        return torch.cat([gate, candidate], dim=-1).unbind(), (both @ self.nobody + self.nobody_bias).unbind()


class BestQueryAttention(nn.Module):
    """How well each key fits the query that it fits best: ℓ(i, j) = [h_i ; t_j ; h_i ⊙ t_j] · w.

    The weights are split into those of the query, the key and their product, so that no triple is ever laid out.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        bound = (6 / (3 * width + 1)) ** 0.5
        self.weight = nn.Parameter(torch.empty(3, width).uniform_(-bound, bound))  # w

    def fits(
        self, queries: Float[Tensor, "*batch Y H"], keys: Float[Tensor, "*batch X H"]
    ) -> Float[Tensor, "*batch Y X"]:
        """ℓ of every query with every key."""
        of_query, of_key, of_product = self.weight
        return (
            (queries @ of_query)[..., :, None]
            + (keys @ of_key)[..., None, :]
            + (queries * of_product) @ keys.transpose(-1, -2)
        )


class SplitAndJoin(nn.Module):
    """Split unit, a gated unit for each role, attention over time and attention over roles."""

    def __init__(self, width: int, members: nn.Module, dropped: float) -> None:
        super().__init__()
        self.dropped = dropped
        self.split, self.join = SplitUnit(width, members), GatedUnit(width, width)
        self.over_time, self.over_roles = BestQueryAttention(width), BestQueryAttention(width)

    def forward(
        self,
        source: Float[Tensor, "B X H"],
        beside: Float[Tensor, "B X H"],
        target: Float[Tensor, "B Y H"],
        shown: tuple[Int[Tensor, "B Q"], Int[Tensor, "B Q"]],
    ) -> Float[Tensor, "B Q H"]:
        """One vector for each question; arguments as those of `FilterTransfer`."""
        own, other = (dropout(states, self.dropped, self.training) for states in (source, beside))
        roles = dropout(self.split(own, other), self.dropped, self.training).transpose(1, 2)
        joined = self.join(roles.flatten(0, 1)).view_as(roles)  # t_{j,k} = GRU(s_{j,k}, t_{j-1,k})
        queries = target[:, None].expand(-1, joined.shape[1], -1, -1)
        told = attend_over_time(self.over_time.fits(queries, joined), joined, *shown)
        return attend_over_roles(self.over_roles.fits(queries, told), told, shown[1])


def attend_over_time(
    fits: Float[Tensor, "B K Y X"],
    states: Float[Tensor, "B K X H"],
    keys_shown: Int[Tensor, "B Q"],
    queries_shown: Int[Tensor, "B Q"],
) -> Float[Tensor, "B K Q H"]:
    """v_k = Σ_j α_{j,k} t_{j,k}, α the softmax of max_i ℓ_k(i, j) over the keys that are shown; zeros without any."""
    # After the first y queries the best fit is a running one; without any query all keys fit alike.
    best_so_far = pad(fits.cummax(dim=2).values, (0, 0, 1, 0))
    best = best_so_far.take_along_dim(queries_shown[:, None, :, None], dim=2)
    shown = _first(keys_shown, states.shape[2])[:, None]
    return masked_softmax(best, shown) @ states


def attend_over_roles(
    fits: Float[Tensor, "B K Y Q"], told: Float[Tensor, "B K Q H"], queries_shown: Int[Tensor, "B Q"]
) -> Float[Tensor, "B Q H"]:
    """v = Σ_k β_k v_k, β the softmax over roles of max_i ℓ'(i, k); roles are alike without a query."""
    shown = _first(queries_shown, fits.shape[2]).transpose(1, 2)[:, None]
    best = fits.masked_fill(~shown, torch.finfo(fits.dtype).min).amax(dim=2)
    weights = (best * shown.any(dim=2)).softmax(dim=1)
    return (weights[..., None] * told).sum(dim=1)


def masked_softmax(logits: Float[Tensor, "*rows N"], known: Bool[Tensor, "*others N"]) -> Float[Tensor, "*rows N"]:
    """A softmax over what is known; zeros where nothing is."""
    return logits.masked_fill(~known, torch.finfo(logits.dtype).min).softmax(dim=-1) * known


def _first(count: Int[Tensor, "B Q"], width: int) -> Bool[Tensor, "B Q N"]:
    return torch.arange(width, device=count.device) < count[..., None]
