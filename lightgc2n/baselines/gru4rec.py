"""GRU4Rec (Hidasi et al., ICLR 2016) with the losses of Hidasi and Karatzoglou (CIKM 2018): a GRU reads
the log, and items are scored by the product of its state with their vectors.

Shapes: B batch, T history, M items, N accounts, D embedding width, H width of a state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch, cut_rows, newest_part
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.layers.ranking_losses import FullCrossEntropy, SampledLoss, bpr_max, sampled_cross_entropy
from lightgc2n.layers.recurrent import (
    GRUStack,
    ItemVectors,
    SeparateItems,
    SharedItems,
    last_states,
    new_items,
    one_step,
    whole_row,
)
from lightgc2n.models.contract import Model

# Differs: the official session-parallel batches run event by event. Here one optimiser step has all events of a row;
# `parallel` keeps their effect on the gradient, detached states.
PIPELINES: dict[str, Callable[..., Tensor]] = {"padded": whole_row, "parallel": one_step}


@dataclass(frozen=True, slots=True, kw_only=True)
class GRU4RecConfig:
    """The authors' symbols in brackets; the defaults are those of a strong reference implementation."""

    width: int = setting(64, at_least=1, help="Width of the embeddings [d].")
    embeddings: str = setting(
        "shared", choices=("shared", "separate"), help="One embedding for input and output, or two."
    )
    state_width: int = setting(0, at_least=0, help="Width of a state, with separate embeddings; 0: as the embeddings.")
    layers: int = setting(1, at_least=1, at_most=8, help="Recurrent layers.")
    max_length: int = setting(50, at_least=1, help="Newest events that are read; longer logs are cut.")
    input_dropout: float = setting(0.2, at_least=0.0, at_most=0.95, help="Share of the input dropped [p_emb].")
    state_dropout: float = setting(0.2, at_least=0.0, at_most=0.95, help="Share of each layer's output [p_hid].")
    account: bool = setting(False, help="Initial state from an account embedding (GRU4Rec+account) instead of zero.")
    pipeline: str = setting(
        "padded", choices=tuple(PIPELINES), help="Gradients through the whole row, or through one event."
    )
    loss: str = setting(
        "ce-full", choices=("ce-full", "ce-sampled", "bpr-max"), help="Over all items, or sampled ones."
    )
    samples: int = setting(2048, at_least=0, help="Items sampled in each step of a sampled loss [n_s].")
    sample_alpha: float = setting(0.5, at_least=0.0, at_most=1.0, help="Power of the counts in sampling [α_s].")
    logq: float = setting(1.0, at_least=0.0, help="logQ correction of ce-sampled [λ_q].")
    bpr_regularisation: float = setting(1.0, at_least=0.0, help="Weight of the squared scores in bpr-max [λ_b].")
    bpr_elu: float = setting(0.5, at_least=0.0, help="ELU coefficient of the scores of bpr-max; 0 for none [a_e].")


class ZeroStart(nn.Module):
    """The initial state is zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, account: Int[Tensor, "B"]) -> Float[Tensor, "B H"]:
        return torch.zeros(len(account), self.width, device=account.device)


class AccountStart(nn.Module):
    """The initial state is a map of the account's embedding; zero for an unseen account."""

    def __init__(self, accounts: int, width: int, state_width: int) -> None:
        super().__init__()
        self.accounts = nn.Parameter(nn.init.xavier_uniform_(torch.empty(accounts, width)))
        self.to_state = nn.Linear(width, state_width)
        nn.init.xavier_uniform_(self.to_state.weight)
        nn.init.zeros_(self.to_state.bias)

    def forward(self, account: Int[Tensor, "B"]) -> Float[Tensor, "B H"]:
        known = (account >= 0)[:, None]
        return self.to_state(embedding(account.clamp(min=0), self.accounts) * known).tanh()  # h_0 = tanh(p_a W + b)


class RecurrentModel(Model):
    """A model that reads logs with a GRU, in rows of at most `max_length` events; shared by GRU4Rec and HRNN."""

    items: SharedItems | SeparateItems

    def warm_start_tensors(self) -> dict[str, str]:
        return {f"items.{name}": "items" for name, _ in self.items.named_parameters()}

    @property
    def captured_length(self) -> int:
        """Longer logs are cut into a varying number of rows, so their step cannot be captured."""
        return min(self.config.max_length, super().captured_length)

    def encode(self) -> ItemVectors:
        return self.items()

    def fold_in_scores(self, encoded: ItemVectors, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        return self.scores(encoded, batch.without_account, domain)


class GRU4Rec(RecurrentModel):
    """The model; its parts follow from the settings."""

    def __init__(self, config: GRU4RecConfig, accounts: int, counts: Float[Tensor, "M"]) -> None:
        super().__init__()
        self.config = config
        width, state_width = _widths(config)
        items = len(counts)
        self.items = new_items(config.embeddings, items, width, state_width, "gru4rec", "state_width")
        self.recurrence = GRUStack(width, state_width, config.layers, config.state_dropout, PIPELINES[config.pipeline])
        self.start = AccountStart(accounts, width, state_width) if config.account else ZeroStart(state_width)
        self.loss = _loss(config, counts)

    @classmethod
    def build(cls, config: GRU4RecConfig, train: Training) -> "GRU4Rec":
        return cls(config, train.accounts, torch.from_numpy(train.popularity).float())

    @classmethod
    def restore(cls, config: GRU4RecConfig, tensors: Mapping[str, Tensor]) -> "GRU4Rec":
        """Rebuild the model from its saved tensors."""
        accounts = len(tensors["start.accounts"]) if config.account else 0
        model = cls(config, accounts, torch.zeros(len(tensors["items.bias"])))
        model.load_state_dict(dict(tensors))
        return model

    def warm_start_tensors(self) -> dict[str, str]:
        return super().warm_start_tensors() | ({"start.accounts": "accounts"} if self.config.account else {})

    @property
    def cuda_graph_safe(self) -> bool:
        return isinstance(self.loss, FullCrossEntropy)

    def losses(self, encoded: ItemVectors, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        batch = cut_rows(batch, self.config.max_length)
        states = self._states(encoded, batch.log, self.start(batch.account))
        return {"next_item": self.loss(states, encoded, batch)}

    @torch.no_grad()
    def scores(self, encoded: ItemVectors, batch: Batch, domain: Domain) -> Float[Tensor, "B M"]:
        """A score for each item of the domain, without the logQ correction of training."""
        batch = newest_part(batch, self.config.max_length)
        start = self.start(batch.account)
        state = last_states(self._states(encoded, batch.history, start), start, batch.length)
        return encoded.logits(state)[:, domain.start : domain.stop]  # r = h_T W_yᵀ + b_y

    def _states(
        self, items: ItemVectors, log: Int[Tensor, "B T"], start: Float[Tensor, "B H"]
    ) -> Float[Tensor, "B T H"]:
        inputs = dropout(embedding(log, items.inputs), self.config.input_dropout, self.training)  # x_t = E[i_t]
        return self.recurrence(inputs, start)


def _widths(config: GRU4RecConfig) -> tuple[int, int]:
    """The widths of embeddings and states."""
    return config.width, config.state_width or config.width


def _loss(config: GRU4RecConfig, counts: Float[Tensor, "M"]) -> nn.Module:
    sampled = partial(SampledLoss, counts, samples=config.samples, alpha=config.sample_alpha)
    weighted = partial(bpr_max, regularisation=config.bpr_regularisation, elu=config.bpr_elu)
    losses: dict[str, Callable[[], nn.Module]] = {
        "ce-full": FullCrossEntropy,
        "ce-sampled": lambda: sampled(criterion=sampled_cross_entropy, correction=config.logq),
        "bpr-max": lambda: sampled(criterion=weighted),
    }
    return losses[config.loss]()
