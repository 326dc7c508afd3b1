"""HRNN (Quadrana et al., RecSys 2017): a GRU over the events of a session, and a GRU over sessions for the user.

A session state is updated by every event, a user state by every session. PyTorch's GRU applies the reset gate after the
product with the old state, and its update gate is 1 - z of the paper.
Shapes: B batch, T history, M items, N accounts, D embedding width, H width of a session state, U of a user state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, linear, pad

from lightgc2n.baselines.gru4rec import RecurrentModel
from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch, cut_rows, newest_part
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.layers.ranking_losses import FullCrossEntropy, SampledLoss, top1
from lightgc2n.layers.recurrent import ItemVectors, last_states, new_gru, new_items, start_gates, whole_row

Session = Callable[[Tensor, Tensor, Tensor], Tensor]  # (inputs, user state, initial state) -> the states of a session


@dataclass(frozen=True, slots=True, kw_only=True)
class HRNNConfig:
    """The paper's variants; `feed` says how logs, which have no sessions, are divided into sessions."""

    width: int = setting(64, at_least=1, help="Width of the embeddings [d].")
    session_width: int = setting(0, at_least=0, help="Width of a session's state [h]; 0: as the embeddings.")
    user_width: int = setting(0, at_least=0, help="Width of a user's state [u]; 0: as the embeddings.")
    embeddings: str = setting(
        "separate", choices=("shared", "separate"), help="One embedding for input and output, or two."
    )
    variant: str = setting(
        "all", choices=("init", "all"), help="Use the user state at the start of a session, or at every event."
    )
    all_gates: bool = setting(
        True, help="Variant all: the user state enters the candidate gate as well; false as in the released code."
    )
    feed: str = setting(
        "split",  # Differs: the paper has rows as sessions; a log is a single row, so `state` would train no user
        choices=("split", "state", "reset"),
        help="Sessions are parts of a row (split) or rows (state); reset has no user state.",
    )
    session_length: int = setting(5, at_least=1, help="Events of a session, where a row is split [c].")
    max_length: int = setting(50, at_least=1, help="Newest events that are read; longer logs are cut.")
    user_dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of a user's state dropped.")
    session_dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of a session's states dropped.")
    start_dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of a session's first state dropped.")
    loss: str = setting(
        "ce-full", choices=("ce-full", "top1"), help="Over all items, or among the targets of the step."
    )
    samples: int = setting(0, at_least=0, help="Items sampled in each step of top1, besides its targets.")
    sample_alpha: float = setting(0.75, at_least=0.0, at_most=1.0, help="Power of the counts in sampling.")


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


class Sessions(nn.Module):
    """Divides rows into sessions; here a row is one session, and its initial states are zero."""

    def __init__(self, config: HRNNConfig, accounts: int) -> None:
        super().__init__()
        _, self.session_width, self.user_width = widths_of(config)

    def begin(self, account: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B U"], Float[Tensor, "B H"]]:
        """The initial user state and session state of a row."""
        zeros = partial(torch.zeros, device=account.device)
        return zeros(len(account), self.user_width), zeros(len(account), self.session_width)

    def forward(
        self,
        session: Session,
        inputs: Float[Tensor, "B T D"],
        user: Float[Tensor, "B U"],
        start: Float[Tensor, "B H"],
    ) -> Float[Tensor, "B T H"]:
        """The state after every event."""
        return session(inputs, user, start)

    def reset_stored(self) -> None:
        """Reset stored states, before an epoch."""

    def store(self, account: Int[Tensor, "B"], user: Float[Tensor, "B U"], ended: Float[Tensor, "B H"]) -> None:
        """Store the states of a row, after a training step."""


class IndependentRows(Sessions):
    """Rows are independent and start from one learned state."""

    def __init__(self, config: HRNNConfig, accounts: int) -> None:
        super().__init__(config, accounts)
        self.start = nn.Parameter(torch.zeros(self.session_width))

    def begin(self, account: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B U"], Float[Tensor, "B H"]]:
        user, start = super().begin(account)
        return user, start + self.start.tanh()  # tanh(0 · W_init + b_init)


class SplitRows(Sessions):
    """A row is split into sessions of a fixed number of events; the user state lasts for the row."""

    def __init__(self, config: HRNNConfig, accounts: int) -> None:
        super().__init__(config, accounts)
        self.length = config.session_length
        self.level = UserLevel(self.session_width, self.user_width, config.user_dropout, config.start_dropout)

    def forward(
        self,
        session: Session,
        inputs: Float[Tensor, "B T D"],
        user: Float[Tensor, "B U"],
        start: Float[Tensor, "B H"],
    ) -> Float[Tensor, "B T H"]:
        first, *others = torch.split(inputs, self.length, dim=1)
        states = [session(first, user, start)]
        for part in others:
            # If `part` has events, the part before it was full; states of padding only reach padding.
            user, start = self.level(states[-1][:, -1], user)
            states.append(session(part, user, start))
        return torch.cat(states, dim=1)


class RowsAsSessions(Sessions):
    """A row is a session, and its final states are stored for the account's next row.

    Stored are s_m and c_{m-1}, detached: c_m is computed where it is used, so that the user GRU is trained there.
    """

    sessions: Float[Tensor, "N H"]
    users: Float[Tensor, "N U"]
    met: Bool[Tensor, "N"]

    def __init__(self, config: HRNNConfig, accounts: int) -> None:
        super().__init__(config, accounts)
        self.level = UserLevel(self.session_width, self.user_width, config.user_dropout, config.start_dropout)
        self.register_buffer("sessions", torch.zeros(accounts, self.session_width))
        self.register_buffer("users", torch.zeros(accounts, self.user_width))
        self.register_buffer("met", torch.zeros(accounts, dtype=torch.bool))

    def begin(self, account: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B U"], Float[Tensor, "B H"]]:
        place = account.clamp(min=0)
        user, start = self.level(self.sessions[place], self.users[place])
        known = (self.met[place] & (account >= 0))[:, None]
        return user * known, start * known

    def reset_stored(self) -> None:
        self.met.zero_()

    @torch.no_grad()
    def store(self, account: Int[Tensor, "B"], user: Float[Tensor, "B U"], ended: Float[Tensor, "B H"]) -> None:
        # Differs: a batch may have several rows of an account. All read the state before the batch; the last is stored.
        last = ~(account[:, None] == account).triu(1).any(dim=1)
        place = account[last]
        self.users[place], self.sessions[place], self.met[place] = user[last], ended[last], True


# by variant, and whether the user state enters all gates
SESSIONS: dict[tuple[str, bool], type[nn.Module]] = {
    ("init", True): SessionAlone,
    ("init", False): SessionAlone,
    ("all", True): SessionWithUser,
    ("all", False): SessionWithUserInTwoGates,
}
DIVISIONS: dict[str, type[Sessions]] = {"split": SplitRows, "state": RowsAsSessions, "reset": IndependentRows}


class HRNN(RecurrentModel):
    """The model; its parts follow from the settings."""

    def __init__(self, config: HRNNConfig, accounts: int, counts: Float[Tensor, "M"]) -> None:
        super().__init__()
        self.config = config
        width, session_width, user_width = widths_of(config)
        self.items = new_items(config.embeddings, len(counts), width, session_width, "hrnn", "session_width")
        self.session = SESSIONS[config.variant, config.all_gates](width, user_width, session_width)
        self.feed = DIVISIONS[config.feed](config, accounts)
        self.loss = _loss(config, counts)

    @classmethod
    def build(cls, config: HRNNConfig, train: Training) -> "HRNN":
        return cls(config, train.accounts, torch.from_numpy(train.popularity).float())

    @classmethod
    def restore(cls, config: HRNNConfig, tensors: Mapping[str, Tensor]) -> "HRNN":
        """Rebuild the model from its saved tensors."""
        accounts = len(tensors["feed.met"]) if config.feed == "state" else 0
        model = cls(config, accounts, torch.zeros(len(tensors["items.bias"])))
        model.load_state_dict(dict(tensors))
        return model

    def start_epoch(self, epoch: int) -> None:
        self.feed.reset_stored()

    def warm_start_tensors(self) -> dict[str, str]:
        stored = [f"feed.{name}" for name, _ in self.feed.named_buffers()]  # the stored states of accounts, if any
        return super().warm_start_tensors() | dict.fromkeys(stored, "accounts")

    @property
    def cuda_graph_safe(self) -> bool:
        return isinstance(self.loss, FullCrossEntropy) and not isinstance(self.feed, RowsAsSessions)

    def losses(self, encoded: ItemVectors, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        batch = cut_rows(batch, self.config.max_length)
        user, start = self.feed.begin(batch.account)
        states = self._states(encoded, batch.log, user, start)
        self.feed.store(batch.account, user, last_states(states, start, batch.seen.sum(dim=1)))
        return {"next_item": self.loss(states, encoded, batch)}

    @torch.no_grad()
    def scores(self, encoded: ItemVectors, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """A score for each item of the domain; stored states are read and not changed."""
        batch = newest_part(batch, self.config.max_length)
        user, start = self.feed.begin(batch.account)
        state = last_states(self._states(encoded, batch.history, user, start), start, batch.length)
        return encoded.logits(state)[:, domain.start : domain.stop]  # s_T W_yᵀ + b_y

    def _states(
        self, items: ItemVectors, log: Int[Tensor, "B T"], user: Float[Tensor, "B U"], start: Float[Tensor, "B H"]
    ) -> Float[Tensor, "B T H"]:
        return self.feed(self._session, embedding(log, items.inputs), user, start)

    def _session(
        self, inputs: Float[Tensor, "B T D"], user: Float[Tensor, "B U"], start: Float[Tensor, "B H"]
    ) -> Float[Tensor, "B T H"]:
        return dropout(self.session(inputs, user, start), self.config.session_dropout, self.training)


def widths_of(config: HRNNConfig) -> tuple[int, int, int]:
    """The widths of embeddings, session states and user states."""
    return config.width, config.session_width or config.width, config.user_width or config.width


def _loss(config: HRNNConfig, counts: Float[Tensor, "M"]) -> nn.Module:
    losses: dict[str, Callable[[], nn.Module]] = {
        "ce-full": FullCrossEntropy,
        "top1": lambda: SampledLoss(counts, top1, samples=config.samples, alpha=config.sample_alpha),
    }
    return losses[config.loss]()
