"""HRNN (Quadrana et al., RecSys 2017): a session's recurrent state, and above it a user's, which moves once a session.

Shapes: B batch, T history, M items, N accounts, D embedding width, H width of a session state, U of a user state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import UNSEEN, Training
from lightgc2n.errors import SettingError
from lightgc2n.layers.ranking_losses import FullCrossEntropy, SampledLoss, top1
from lightgc2n.layers.recurrent import (
    ItemVectors,
    SeparateItems,
    SharedItems,
    last_states,
)
from lightgc2n.layers.sessions import SessionAlone, SessionWithUser, SessionWithUserInTwoGates, UserLevel
from lightgc2n.layers.windows import cut_rows, newest_part
from lightgc2n.models.contract import Model

Session = Callable[[Tensor, Tensor, Tensor], Tensor]  # inputs, user state and first state to the states of a session


@dataclass(frozen=True, slots=True, kw_only=True)
class HRNNConfig:
    """The paper's variants; where its sessions come from, which logs do not have, is `feed`."""

    width: int = setting(64, at_least=1, help="Width of the embeddings [d].")
    session_width: int = setting(0, at_least=0, help="Width of a session's state [h]; 0: as the embeddings.")
    user_width: int = setting(0, at_least=0, help="Width of a user's state [u]; 0: as the embeddings.")
    embeddings: str = setting("separate", choices=("shared", "separate"), help="Whether inputs are answers as well.")
    variant: str = setting("all", choices=("init", "all"), help="User state at a session's start, or at all events.")
    all_gates: bool = setting(True, help="Variant all: the user state enters the candidate too; false as in the code.")
    feed: str = setting("split", choices=("split", "state", "reset"), help="Parts of a row, rows, or no user state.")
    session_length: int = setting(5, at_least=1, help="Events of a session, where a row is split [c].")
    max_length: int = setting(50, at_least=1, help="Newest events that are read; longer logs are cut.")
    user_dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of a user's state dropped.")
    session_dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of a session's states dropped.")
    start_dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of a session's first state dropped.")
    loss: str = setting("ce-full", choices=("ce-full", "top1"), help="Over all items, or among those of the step.")
    samples: int = setting(0, at_least=0, help="Items drawn in each step of top1, besides its targets.")
    sample_alpha: float = setting(0.75, at_least=0.0, at_most=1.0, help="Power of the counts in drawing.")


class Feed(nn.Module):
    """Where sessions begin and end, and what a row's first session knows of its user: nothing, exactly zero."""

    def __init__(self, config: HRNNConfig, accounts: int) -> None:
        super().__init__()
        _, self.session_width, self.user_width = widths_of(config)

    def begin(self, account: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B U"], Float[Tensor, "B H"]]:
        """The user state and the session state before a row's first event."""
        zeros = partial(torch.zeros, device=account.device)
        return zeros(len(account), self.user_width), zeros(len(account), self.session_width)

    def forward(
        self,
        session: Session,
        inputs: Float[Tensor, "B T D"],
        user: Float[Tensor, "B U"],
        start: Float[Tensor, "B H"],
    ) -> Float[Tensor, "B T H"]:
        """The state after every event; here a row is one session."""
        return session(inputs, user, start)

    def forget(self) -> None:
        """Before an epoch."""

    def remember(self, account: Int[Tensor, "B"], user: Float[Tensor, "B U"], ended: Float[Tensor, "B H"]) -> None:
        """After a step of training."""


class ResetFeed(Feed):
    """Rows know nothing of each other and start from one learned state."""

    def __init__(self, config: HRNNConfig, accounts: int) -> None:
        super().__init__(config, accounts)
        self.start = nn.Parameter(torch.zeros(self.session_width))

    def begin(self, account: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B U"], Float[Tensor, "B H"]]:
        user, start = super().begin(account)
        return user, start + self.start.tanh()  # tanh(0 · W_init + b_init)


class SplitFeed(Feed):
    """A row is cut into sessions of some events, and the user's state lives as long as the row."""

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
            # Events in `part` tell that the part before it was full; states of padding lead to padding alone.
            user, start = self.level(states[-1][:, -1], user)
            states.append(session(part, user, start))
        return torch.cat(states, dim=1)


class StateFeed(Feed):
    """A row is a session, and what it leaves behind is kept for the account's next row.

    Kept are s_m and c_{m-1} as values: c_m is computed where it is used, so that the user's unit is trained there.
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

    def forget(self) -> None:
        self.met.zero_()

    @torch.no_grad()
    def remember(self, account: Int[Tensor, "B"], user: Float[Tensor, "B U"], ended: Float[Tensor, "B H"]) -> None:
        # Differs: a batch may hold several rows of an account. All have read the state before it; the last one is kept.
        last = ~(account[:, None] == account).triu(1).any(dim=1)
        place = account[last]
        self.users[place], self.sessions[place], self.met[place] = user[last], ended[last], True


# by variant, and whether the user's state enters all gates
SESSIONS: dict[tuple[str, bool], type[nn.Module]] = {
    ("init", True): SessionAlone,
    ("init", False): SessionAlone,
    ("all", True): SessionWithUser,
    ("all", False): SessionWithUserInTwoGates,
}
FEEDS: dict[str, type[Feed]] = {"split": SplitFeed, "state": StateFeed, "reset": ResetFeed}


class HRNN(Model):
    """The model; settings choose its parts."""

    def __init__(self, config: HRNNConfig, accounts: int, counts: Float[Tensor, "M"]) -> None:
        super().__init__()
        self.config = config
        width, session_width, user_width = widths_of(config)
        items, shared = len(counts), config.embeddings == "shared"
        self.items = SharedItems(items, width) if shared else SeparateItems(items, width, session_width)
        self.session = SESSIONS[config.variant, config.all_gates](width, user_width, session_width)
        self.feed = FEEDS[config.feed](config, accounts)
        self.loss = _loss(config, counts)

    @classmethod
    def build(cls, config: HRNNConfig, train: Training) -> "HRNN":
        return cls(config, train.accounts, torch.from_numpy(train.popularity).float())

    @classmethod
    def restore(cls, config: HRNNConfig, tensors: Mapping[str, Tensor]) -> "HRNN":
        """The model that these tensors were saved from."""
        accounts = len(tensors["feed.met"]) if config.feed == "state" else 0
        model = cls(config, accounts, torch.zeros(len(tensors["items.bias"])))
        model.load_state_dict(dict(tensors))
        return model

    def start_epoch(self, epoch: int) -> None:
        self.feed.forget()

    def carried(self) -> dict[str, str]:
        kept = [f"feed.{name}" for name, _ in self.feed.named_buffers()]  # what accounts left behind, if anything
        items = {f"items.{name}": "items" for name, _ in self.items.named_parameters()}
        return items | dict.fromkeys(kept, "accounts")

    def encode(self) -> ItemVectors:
        return self.items()

    def losses(self, encoded: ItemVectors, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        batch = cut_rows(batch, self.config.max_length)
        user, start = self.feed.begin(batch.account)
        states = self._states(encoded, batch.log, user, start)
        self.feed.remember(batch.account, user, last_states(states, start, batch.seen.sum(dim=1)))
        return {"next_item": self.loss(states, encoded, batch)}

    @torch.no_grad()
    def scores(self, encoded: ItemVectors, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """A score for each item of the domain; kept states are read and never written."""
        batch = newest_part(batch, self.config.max_length)
        user, start = self.feed.begin(batch.account)
        state = last_states(self._states(encoded, batch.history, user, start), start, batch.length)
        return encoded.logits(state)[:, domain.start : domain.stop]  # s_T W_yᵀ + b_y

    def fold_in_scores(self, encoded: ItemVectors, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        return self.scores(encoded, replace(batch, account=torch.full_like(batch.account, UNSEEN)), domain)

    def _states(
        self, items: ItemVectors, log: Int[Tensor, "B T"], user: Float[Tensor, "B U"], start: Float[Tensor, "B H"]
    ) -> Float[Tensor, "B T H"]:
        return self.feed(self._session, embedding(log, items.inputs), user, start)

    def _session(
        self, inputs: Float[Tensor, "B T D"], user: Float[Tensor, "B U"], start: Float[Tensor, "B H"]
    ) -> Float[Tensor, "B T H"]:
        return dropout(self.session(inputs, user, start), self.config.session_dropout, self.training)


def parameter_count(config: HRNNConfig, accounts: int, items: int) -> int:
    """M(D + 1), M·H if separate, 3H(D + H + 2), of the user 3U(H + U + 2) + (U + 1)H; in all 3UH, or 2UH as the code.

    Reset has H parameters in place of the user's. Kept states are none.
    """
    width, session, user = widths_of(config)
    tables = items * (width + 1) + (items * session if config.embeddings == "separate" else 0)
    gates = {"init": 0, "all": 3 if config.all_gates else 2}[config.variant]
    level = 3 * user * (session + user + 2) + (user + 1) * session
    return (
        tables
        + 3 * session * (width + session + 2)
        + gates * user * session
        + (session if config.feed == "reset" else level)
    )


def widths_of(config: HRNNConfig) -> tuple[int, int, int]:
    """The widths of embeddings, session states and user states."""
    session_width, user_width = config.session_width or config.width, config.user_width or config.width
    if config.embeddings == "shared" and session_width != config.width:
        raise SettingError(
            f"hrnn: shared embeddings are multiplied with session states, so both have one width; found width "
            f"{config.width} and session_width {session_width}. Leave session_width at 0, or set embeddings=separate."
        )
    return config.width, session_width, user_width


def _loss(config: HRNNConfig, counts: Float[Tensor, "M"]) -> nn.Module:
    losses: dict[str, Callable[[], nn.Module]] = {
        "ce-full": FullCrossEntropy,
        "top1": lambda: SampledLoss(counts, top1, samples=config.samples, alpha=config.sample_alpha),
    }
    return losses[config.loss]()
