"""SASRec (Kang & McAuley, ICDM 2018): causal self-attention over the log, with modern losses.

The softmax over all items is that of Klenitskiy & Vasilev (RecSys 2023), gBCE that of gSASRec (RecSys 2023).
Shapes: B batch, T history, M items, N items of a domain, P events, I queries, D width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, relu

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, Packing, TrainingBatch, cut_rows, newest_part, pack
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.errors import SettingError
from lightgc2n.layers.attention import CausalAttention
from lightgc2n.layers.recurrent import last_states
from lightgc2n.layers.sampled_losses import mean_gbce, mean_sampled_softmax, mean_softmax
from lightgc2n.models.contract import Model

FIRST_DEVIATION = 0.02  # standard deviation of initial embeddings and matrices
NORM_EPSILON = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class SASRecConfig:
    """The values of a strong reference; the original's symbols in brackets."""

    width: int = setting(64, at_least=1, help="Width of the embeddings and of every layer [d].")
    blocks: int = setting(2, at_least=1, at_most=16, help="Blocks of attention and feed-forward [b].")
    heads: int = setting(2, at_least=1, help="Attention heads.")
    max_length: int = setting(50, at_least=1, help="Newest events that are read; longer logs train in windows [n].")
    dropout: float = setting(0.2, at_least=0.0, at_most=0.95, help="Share of features dropped in training.")
    tied: bool = setting(
        False, help="Score with the input embeddings; otherwise items have separate output embeddings."
    )
    loss: str = setting(
        "softmax",
        choices=("softmax", "sampled-softmax", "gbce"),
        help="Cross-entropy over all items, or against sampled items.",
    )
    negatives: int = setting(256, at_least=1, help="Items sampled by the sampled losses [k].")
    calibration: float = setting(0.75, at_least=0.0, at_most=1.0, help="Calibration of gBCE: 0 none, 1 full [t].")


Loss = Callable[[Float[Tensor, "I D"], Float[Tensor, "M D"], Int[Tensor, "I"]], Float[Tensor, ""]]


def loss_named(config: SASRecConfig) -> Loss:
    """The loss function that the settings select."""
    losses: dict[str, Loss] = {
        "softmax": mean_softmax,
        "sampled-softmax": partial(mean_sampled_softmax, negatives=config.negatives),
        "gbce": partial(mean_gbce, negatives=config.negatives, calibration=config.calibration),
    }
    return losses[config.loss]


class Block(nn.Module):
    """Attention, then a feed-forward layer, both with residual connections and layer normalisation."""

    def __init__(self, width: int, heads: int, drop: float) -> None:
        super().__init__()
        self.drop = drop
        self.attention_norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.attention = CausalAttention(width, heads, drop)
        self.forward_norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, events: Float[Tensor, "P D"], packing: Packing) -> Float[Tensor, "P D"]:
        queries = self.attention_norm(events)
        # As in the original, only the query is normalised, and the residual connection starts from it.
        mixed = self.forward_norm(queries + self.attention(queries, events, packing))
        inner = dropout(relu(self.inner(mixed)), self.drop, self.training)
        return mixed + dropout(self.outer(inner), self.drop, self.training)


class SASRec(Model):
    """Scores from the newest events and their order; the account is not used."""

    def __init__(self, config: SASRecConfig, items: int) -> None:
        super().__init__()
        if config.width % config.heads:
            raise SettingError(
                f"sasrec: {config.heads} heads do not divide width {config.width}. Choose a divisor of it."
            )
        self.config = config
        self.loss = loss_named(config)
        self.items = nn.Parameter(torch.empty(items, config.width))
        self.positions = nn.Parameter(torch.empty(config.max_length, config.width))
        self.second_items = None if config.tied else nn.Parameter(torch.empty(items, config.width))
        self.blocks = nn.ModuleList(Block(config.width, config.heads, config.dropout) for _ in range(config.blocks))
        self.last_norm = nn.LayerNorm(config.width, eps=NORM_EPSILON)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=FIRST_DEVIATION)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    @classmethod
    def build(cls, config: SASRecConfig, train: Training) -> "SASRec":
        return cls(config, train.items)

    @classmethod
    def restore(cls, config: SASRecConfig, tensors: dict[str, Tensor]) -> "SASRec":
        model = cls(config, len(tensors["items"]))
        model.load_state_dict(tensors)
        return model

    def warm_start_tensors(self) -> dict[str, str]:
        return dict.fromkeys(("items",) if self.config.tied else ("items", "second_items"), "items")

    def encode(self) -> Float[Tensor, "M D"]:
        """The embeddings that items are scored with."""
        return self.items if self.second_items is None else self.second_items

    def losses(self, encoded: Float[Tensor, "M D"], batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """The mean over all places that count; logs longer than `max_length` are cut into parts."""
        batch = cut_rows(batch, self.config.max_length)
        states = self.states(batch.log, batch.seen).flatten(0, 1)[batch.at]
        return {"next_item": self.loss(states, encoded, batch.target)}

    @torch.no_grad()
    def scores(self, encoded: Float[Tensor, "M D"], batch: Batch, domain: Domain) -> Float[Tensor, "B N"]:
        """Scores from the newest `max_length` events; equal scores for an empty history."""
        batch = newest_part(batch, self.config.max_length)
        states = self.states(batch.history, batch.known)
        newest = last_states(states, encoded.new_zeros(len(states), self.config.width), batch.length)
        return (newest @ encoded.T)[:, domain.start : domain.stop]  # score(i) = F_L · O_i

    def states(self, log: Int[Tensor, "B T"], seen: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """The state after each event; zero on padding."""
        packing = pack(seen)
        items = embedding(log.flatten()[packing.at], self.items)
        # Positions count back from the newest event, so that it always has position 0.
        events = self.config.width**0.5 * items + embedding(packing.age, self.positions)
        events = dropout(events, self.config.dropout, self.training)  # X_0
        for block in self.blocks:
            events = block(events, packing)
        return packing.spread(self.last_norm(events))  # F
