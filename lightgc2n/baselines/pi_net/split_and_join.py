"""The transfer of PSJNet-II: a state for every role of the account (split), joined by two attentions.

Shapes: B logs, X events of the source, Y of the target, Q queries, K roles, H width of a state.
A query depends on the events before it alone, so all queries of a log are computed in one pass.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from lightgc2n.baselines.pi_net.batched_rnn import Parts, Prepared
from lightgc2n.baselines.pi_net.gated_unit import GatedUnit, drawn
from lightgc2n.baselines.pi_net.shared_filter import FilterUnit, Transfer, TransferInputs
from lightgc2n.layers.attention import softmax_over

TINY = 1e-10


class SplitUnit(FilterUnit):
    """A state for each role; the gates of all roles and the gate of the old state are normalised feature by feature."""

    def __init__(self, width: int, roles: nn.Module) -> None:
        super().__init__(width)  # W_f, b_f, W_c, b_c
        self.roles = roles
        self.nobody = drawn(2 * width, width)  # W_n, rows of p and q
        self.nobody_state = drawn(width, width)  # N_1
        self.nobody_roles = drawn(len(roles()[0]), width)  # n
        self.nobody_bias = nn.Parameter(torch.ones(width))

    def prepared(
        self,
        own: Float[Tensor, "B X H"],
        other: Float[Tensor, "B X H"],
        start: Float[Tensor, "B K H"] | None = None,
        length: Int[Tensor, "B"] | None = None,
    ) -> Prepared:
        """The recurrence, ready to run; it returns the states of all roles after every event of the source.

        Args:
            own: the source's state at the event, p.
            other: the target's state at the time of the event, q.
            start: the initial states, s_0; zero by default.
        """
        of_inputs, bias, of_state = self.maps()
        of_inputs = torch.cat([of_inputs, self.nobody], dim=1)
        bias = torch.cat([bias, self.nobody_bias])
        of_state = torch.cat([of_state, self.nobody_state], dim=1)
        weights = of_state, torch.cat(self.roles(), dim=1), self.nobody_roles
        start = own.new_zeros(len(own), *self.nobody_roles.shape) if start is None else start
        return Prepared(Splitting(), torch.cat([own, other], dim=-1), of_inputs, bias, weights, start, length)


class Splitting:
    """The recurrence of `SplitUnit`; its weights are of the states, for the gate, the candidate and the keep gate;
    of the roles, for the first two; and of each role's state in the keep gate.
    """

    @staticmethod
    def step(
        mapped: Tensor, before: Tensor, of_state: Tensor, of_roles: Tensor, of_keep_gate: Tensor
    ) -> tuple[Tensor, Parts]:
        for_roles, for_keep_gate = mapped.tensor_split((of_roles.shape[-1],), dim=-1)
        to_roles, keep = _times(before, of_state).tensor_split((of_roles.shape[-1],), dim=-1)
        to_gate, to_candidate = (to_roles + (for_roles[:, :, None] + of_roles[:, None])).chunk(2, dim=-1)
        gate = to_gate.sigmoid()  # f̃ = σ([p ; q ; s_k] W_f + r_k V_f + b_f)
        candidate = to_candidate.tanh()  # c = tanh([p ; s_k] W_c + r_k V_c + b_c)
        pooled = for_keep_gate + (keep * of_keep_gate[:, None]).sum(dim=2)
        keep_gate = pooled.sigmoid()[:, :, None]  # g̃ = σ([p ; q] W_n + Σ_k (s_k N_1) ⊙ n_k + b_n), common to all roles
        return joined(before, gate, candidate, keep_gate)[0], (gate, candidate, keep_gate)

    @staticmethod
    def factors(before: Tensor, gate: Tensor, candidate: Tensor, keep_gate: Tensor) -> Parts:
        """The derivatives to each role's gate, candidate and old state; summed over roles, to the keep gate and to the
        total z; and from z to each gate.
        """
        after, total = joined(before, gate, candidate, keep_gate)
        to_gates = gate * (1 - gate) / total
        to_candidate = gate * (1 - candidate.square()) / total
        to_keep_gate = (before - after) * (keep_gate * (1 - keep_gate) / total)
        to_each = torch.stack([candidate * to_gates, to_candidate, (keep_gate / total).expand_as(gate)], dim=2)
        return to_each, torch.stack([to_keep_gate, after], dim=2), to_gates

    @staticmethod
    def back(
        gradient: Tensor, factors: Parts, of_state: Tensor, of_roles: Tensor, of_keep_gate: Tensor
    ) -> tuple[Tensor, Tensor]:
        gate, candidate, old_states = (gradient[:, :, None] * factors[0]).unbind(dim=2)
        keep_gate, total = (gradient[:, :, None] * factors[1]).sum(dim=3, keepdim=True).unbind(dim=2)
        gate = torch.addcmul(gate, total, factors[2], value=-1)
        inner = torch.cat([gate, candidate, keep_gate * of_keep_gate[:, None]], dim=-1)
        return old_states + _times(inner, of_state.mT), torch.cat([inner, keep_gate.expand_as(gate)], dim=-1)

    @staticmethod
    def ends(gradient: Tensor, inner: Tensor, before: Tensor, parts: Parts, *weights: Tensor) -> Parts:
        of_state, of_roles, _ = weights
        width, keep_gate = of_state.shape[-1], inner[..., of_state.shape[-1] :]
        to_roles = inner[..., : of_roles.shape[-1]]
        of_given = torch.cat([to_roles.sum(dim=2), keep_gate[:, :, 0]], dim=-1)
        to_state = before.flatten(1, 2).mT @ inner[..., :width].flatten(1, 2)
        keep = _times(before, of_state[..., of_roles.shape[-1] :])
        return of_given, to_state, to_roles.sum(dim=1), (keep * keep_gate).sum(dim=1)


def _times(rows: Float[Tensor, "S N K I"], weights: Float[Tensor, "S I J"]) -> Float[Tensor, "S N K J"]:
    return (rows.flatten(1, 2) @ weights).view(*rows.shape[:3], -1)


def joined(
    before: Float[Tensor, "S N K H"],
    gate: Float[Tensor, "S N K H"],
    candidate: Float[Tensor, "S N K H"],
    keep_gate: Float[Tensor, "S N 1 H"],
) -> tuple[Float[Tensor, "S N K H"], Float[Tensor, "S N 1 H"]]:
    """The next states, and the sum of all gates."""
    total = gate.sum(dim=2, keepdim=True) + keep_gate + TINY  # z
    return torch.addcmul(gate * candidate, keep_gate, before) / total, total  # s_k = f_k ⊙ c_k + g ⊙ s_k


class BestQueryAttention(nn.Module):
    """Attention by the best-fitting query of each key: ℓ(i, j) = [h_i ; t_j ; h_i ⊙ t_j] · w.

    The weights are split into those of query, key and product, so that no triple is stored.
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


class SplitAndJoin(Transfer):
    """Split unit, a gated unit for each role, attention over time and attention over roles."""

    def __init__(self, width: int, members: nn.Module, dropped: float) -> None:
        super().__init__(dropped)
        self.split, self.join = SplitUnit(width, members), GatedUnit(width, width)
        self.over_time, self.over_roles = BestQueryAttention(width), BestQueryAttention(width)

    def first_recurrence(self, inputs: TransferInputs) -> Prepared:
        return self.split.prepared(self.drop(inputs.source), self.drop(inputs.beside), length=inputs.length)

    def second_recurrence(self, states: Float[Tensor, "B X K H"], inputs: TransferInputs) -> Prepared:
        roles = self.drop(states).transpose(1, 2).flatten(0, 1)
        length = None if inputs.length is None else inputs.length.repeat_interleave(states.shape[2])
        return self.join.prepared(roles, length=length)

    def output(self, states: Float[Tensor, "BK X H"], inputs: TransferInputs) -> Float[Tensor, "B Q H"]:
        joined = states.view(len(inputs.source), -1, *states.shape[1:])  # t_{j,k} = GRU(s_{j,k}, t_{j-1,k})
        queries = inputs.target[:, None].expand(-1, joined.shape[1], -1, -1)
        fits = self.over_time.fits(queries, joined)
        pooled = attend_over_time(fits, joined, inputs.source_shown, inputs.target_shown)
        return attend_over_roles(self.over_roles.fits(queries, pooled), pooled, inputs.target_shown)


def attend_over_time(
    fits: Float[Tensor, "B K Y X"],
    states: Float[Tensor, "B K X H"],
    keys_shown: Int[Tensor, "B Q"],
    queries_shown: Int[Tensor, "B Q"],
) -> Float[Tensor, "B K Q H"]:
    """v_k = Σ_j α_{j,k} t_{j,k}, α the softmax of max_i ℓ_k(i, j) over the visible keys; zero without any."""
    # The best fit over the first y queries is a running maximum; without any query all keys have equal weight.
    best_so_far = pad(fits.cummax(dim=2).values, (0, 0, 1, 0))
    best = best_so_far.take_along_dim(queries_shown[:, None, :, None], dim=2)
    shown = _first(keys_shown, states.shape[2])[:, None]
    return softmax_over(shown, best) @ states


def attend_over_roles(
    fits: Float[Tensor, "B K Y Q"], pooled: Float[Tensor, "B K Q H"], queries_shown: Int[Tensor, "B Q"]
) -> Float[Tensor, "B Q H"]:
    """v = Σ_k β_k v_k, β the softmax over roles of max_i ℓ'(i, k); equal weights without a query."""
    shown = _first(queries_shown, fits.shape[2]).transpose(1, 2)[:, None]
    best = fits.masked_fill(~shown, torch.finfo(fits.dtype).min).amax(dim=2)
    weights = (best * shown.any(dim=2)).softmax(dim=1)
    return (weights[..., None] * pooled).sum(dim=1)


def _first(count: Int[Tensor, "B Q"], width: int) -> Bool[Tensor, "B Q N"]:
    return torch.arange(width, device=count.device) < count[..., None]
