"""The two recurrent levels of HRNN: a session state updated by every event, a user state updated by every session.

Shapes: B logs, T events of a session, D width of an input, H width of a session state, U of a user state.
PyTorch's GRU applies the reset gate after the product with the old state, and its update gate is 1 - z of the paper.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import dropout, linear, pad

from lightgc2n.layers.recurrent import new_gru, start_gates, whole_row


class SessionAlone(nn.Module):
    """Variant init: within a session the inputs are items alone."""

    def __init__(self, width: int, user_width: int, session_width: int) -> None:
        super().__init__()
        self.gru = new_gru(width, session_width)

    def forward(
        self, inputs: Float[Tensor, "B T D"], user: Float[Tensor, "B U"], start: Float[Tensor, "B H"]
    ) -> Float[Tensor, "B T H"]:
        return whole_row(self.gru, inputs, start)  # s_t = GRU_ses(x_t, s_{t-1})


class SessionWithUser(nn.Module):
    """Variant all: the user state is concatenated to every input and enters all three gates."""

    def __init__(self, width: int, user_width: int, session_width: int) -> None:
        super().__init__()
        self.gru = new_gru(width + user_width, session_width)

    def forward(
        self, inputs: Float[Tensor, "B T D"], user: Float[Tensor, "B U"], start: Float[Tensor, "B H"]
    ) -> Float[Tensor, "B T H"]:
        beside = user[:, None].expand(-1, inputs.shape[1], -1)
        return whole_row(self.gru, torch.cat([inputs, beside], dim=-1), start)  # s_t = GRU_ses([x_t ; c_m], s_{t-1})


class SessionWithUserInTwoGates(nn.Module):
    """Variant all as in the released code: the user state does not enter the candidate."""

    def __init__(self, width: int, user_width: int, session_width: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(width, session_width)
        start_gates(self.cell)
        self.from_user = nn.Linear(user_width, 2 * session_width, bias=False)
        nn.init.xavier_uniform_(self.from_user.weight)

    def forward(
        self, inputs: Float[Tensor, "B T D"], user: Float[Tensor, "B U"], start: Float[Tensor, "B H"]
    ) -> Float[Tensor, "B T H"]:
        to_gates = pad(self.from_user(user), (0, start.shape[1]))[:, None]
        mapped = linear(inputs, self.cell.weight_ih, self.cell.bias_ih) + to_gates
        state, states = start, []
        # No fused GRU has such gates, so this variant loops over the events.
        for now in mapped.unbind(dim=1):
            state = self._step(state, now)
            states.append(state)
        return torch.stack(states, dim=1)

    def _step(self, state: Float[Tensor, "B H"], mapped: Float[Tensor, "B 3*H"]) -> Float[Tensor, "B H"]:
        own = linear(state, self.cell.weight_hh, self.cell.bias_hh).chunk(3, dim=1)
        to_reset, to_update, to_candidate = mapped.chunk(3, dim=1)
        reset, update = (to_reset + own[0]).sigmoid(), (to_update + own[1]).sigmoid()
        return torch.lerp((to_candidate + reset * own[2]).tanh(), state, update)


class UserLevel(nn.Module):
    """The update of the user state, and the initial state of the next session."""

    def __init__(self, session_width: int, user_width: int, user_dropped: float, start_dropped: float) -> None:
        super().__init__()
        self.user_dropped, self.start_dropped = user_dropped, start_dropped
        self.cell = nn.GRUCell(session_width, user_width)
        start_gates(self.cell)
        self.to_start = nn.Linear(user_width, session_width)
        nn.init.xavier_uniform_(self.to_start.weight)
        nn.init.zeros_(self.to_start.bias)

    def forward(
        self, ended: Float[Tensor, "B H"], user: Float[Tensor, "B U"]
    ) -> tuple[Float[Tensor, "B U"], Float[Tensor, "B H"]]:
        user = dropout(self.cell(ended, user), self.user_dropped, self.training)  # c_m = GRU_usr(s_m, c_{m-1})
        start = self.to_start(user).tanh()  # s_{m+1,0} = drop(tanh(c_m W_init + b_init))
        return user, dropout(start, self.start_dropped, self.training)
