"""PSJNet-II's way from one domain to the other: a state for every role behind the account, joined by two attentions.

Shapes: B logs, X events of the source, Y of the target, Q questions, K roles, H width of a state.
A question sees the events before it alone, so all questions of a log can be answered in one pass.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from lightgc2n.layers.filters import Heard, Transfer
from lightgc2n.layers.gated import GatedUnit, drawn
from lightgc2n.layers.unrolling import Parts, Prepared

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
        return self.prepared(own, other, start).run()

    def prepared(
        self,
        own: Float[Tensor, "B X H"],
        other: Float[Tensor, "B X H"],
        start: Float[Tensor, "B K H"] | None = None,
        length: Int[Tensor, "B"] | None = None,
    ) -> Prepared:
        """The recurrence before its first event."""
        # The candidate does not see the other domain.
        candidate = pad(self.candidate[: self.width], (0, 0, 0, self.width))
        of_inputs = torch.cat([self.gate[: 2 * self.width], candidate, self.nobody], dim=1)
        bias = torch.cat([self.gate_bias, self.candidate_bias, self.nobody_bias])
        of_state = torch.cat([self.gate[2 * self.width :], self.candidate[self.width :], self.nobody_state], dim=1)
        weights = of_state, torch.cat(self.roles(), dim=1), self.nobody_roles
        start = own.new_zeros(len(own), *self.nobody_roles.shape) if start is None else start
        return Prepared(Splitting(), torch.cat([own, other], dim=-1), of_inputs, bias, weights, start, length)


class Splitting:
    """The weights are those of the states, for gate, candidate and nobody's gate; what each role adds to the first two;
    and how each role's state counts for the last.
    """

    @staticmethod
    def step(
        given: Tensor, before: Tensor, of_state: Tensor, of_roles: Tensor, of_nobody: Tensor
    ) -> tuple[Tensor, Parts]:
        for_roles, for_nobody = given.tensor_split((of_roles.shape[-1],), dim=-1)
        to_roles, keep = _times(before, of_state).tensor_split((of_roles.shape[-1],), dim=-1)
        to_gate, to_candidate = (to_roles + (for_roles[:, :, None] + of_roles[:, None])).chunk(2, dim=-1)
        gate = to_gate.sigmoid()  # f̃ = σ([p ; q ; s_k] W_f + r_k V_f + b_f)
        candidate = to_candidate.tanh()  # c = tanh([p ; s_k] W_c + r_k V_c + b_c)
        told = for_nobody + (keep * of_nobody[:, None]).sum(dim=2)
        nobody = told.sigmoid()[:, :, None]  # g̃ = σ([p ; q] W_n + Σ_k (s_k N_1) ⊙ n_k + b_n), common to all roles
        return joined(before, gate, candidate, nobody)[0], (gate, candidate, nobody)

    @staticmethod
    def factors(before: Tensor, gate: Tensor, candidate: Tensor, nobody: Tensor) -> Parts:
        """To each role's gate, candidate and old state; summed over roles, to nobody's gate and to the total z; and how
        much of the latter goes to each gate.
        """
        after, total = joined(before, gate, candidate, nobody)
        to_gates = gate * (1 - gate) / total
        to_candidate = gate * (1 - candidate.square()) / total
        to_nobody = (before - after) * (nobody * (1 - nobody) / total)
        to_each = torch.stack([candidate * to_gates, to_candidate, (nobody / total).expand_as(gate)], dim=2)
        return to_each, torch.stack([to_nobody, after], dim=2), to_gates

    @staticmethod
    def back(
        gradient: Tensor, factors: Parts, of_state: Tensor, of_roles: Tensor, of_nobody: Tensor
    ) -> tuple[Tensor, Tensor]:
        gate, candidate, kept = (gradient[:, :, None] * factors[0]).unbind(dim=2)
        nobody, total = (gradient[:, :, None] * factors[1]).sum(dim=3, keepdim=True).unbind(dim=2)
        gate = torch.addcmul(gate, total, factors[2], value=-1)
        inner = torch.cat([gate, candidate, nobody * of_nobody[:, None]], dim=-1)
        return kept + _times(inner, of_state.mT), torch.cat([inner, nobody.expand_as(gate)], dim=-1)

    @staticmethod
    def ends(gradient: Tensor, inner: Tensor, before: Tensor, parts: Parts, *weights: Tensor) -> Parts:
        of_state, of_roles, _ = weights
        width, nobody = of_state.shape[-1], inner[..., of_state.shape[-1] :]
        to_roles = inner[..., : of_roles.shape[-1]]
        of_given = torch.cat([to_roles.sum(dim=2), nobody[:, :, 0]], dim=-1)
        to_state = before.flatten(1, 2).mT @ inner[..., :width].flatten(1, 2)
        keep = _times(before, of_state[..., of_roles.shape[-1] :])
        return of_given, to_state, to_roles.sum(dim=1), (keep * nobody).sum(dim=1)


def _times(rows: Float[Tensor, "S N K I"], weights: Float[Tensor, "S I J"]) -> Float[Tensor, "S N K J"]:
    return (rows.flatten(1, 2) @ weights).view(*rows.shape[:3], -1)


def joined(
    before: Float[Tensor, "S N K H"],
    gate: Float[Tensor, "S N K H"],
    candidate: Float[Tensor, "S N K H"],
    nobody: Float[Tensor, "S N 1 H"],
) -> tuple[Float[Tensor, "S N K H"], Float[Tensor, "S N 1 H"]]:
    """The states after an event, and what all gates add up to."""
    total = gate.sum(dim=2, keepdim=True) + nobody + TINY  # z
    return torch.addcmul(gate * candidate, nobody, before) / total, total  # s_k = f_k ⊙ c_k + g ⊙ s_k


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


class SplitAndJoin(Transfer):
    """Split unit, a gated unit for each role, attention over time and attention over roles."""

    def __init__(self, width: int, members: nn.Module, dropped: float) -> None:
        super().__init__(dropped)
        self.split, self.join = SplitUnit(width, members), GatedUnit(width, width)
        self.over_time, self.over_roles = BestQueryAttention(width), BestQueryAttention(width)

    def split_up(self, heard: Heard) -> Prepared:
        return self.split.prepared(self.drop(heard.source), self.drop(heard.beside), length=heard.length)

    def carry(self, states: Float[Tensor, "B X K H"], heard: Heard) -> Prepared:
        roles = self.drop(states).transpose(1, 2).flatten(0, 1)
        return self.join.prepared(roles, length=heard.length.repeat_interleave(states.shape[2]))

    def answer(self, states: Float[Tensor, "BK X H"], heard: Heard) -> Float[Tensor, "B Q H"]:
        joined = states.view(len(heard.source), -1, *states.shape[1:])  # t_{j,k} = GRU(s_{j,k}, t_{j-1,k})
        queries = heard.target[:, None].expand(-1, joined.shape[1], -1, -1)
        fits = self.over_time.fits(queries, joined)
        told = attend_over_time(fits, joined, heard.source_shown, heard.target_shown)
        return attend_over_roles(self.over_roles.fits(queries, told), told, heard.target_shown)


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
