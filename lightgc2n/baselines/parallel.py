"""π-Net (Ma et al., SIGIR 2019), which is PSJNet-I, and PSJNet-II (Sun et al., TKDE 2023): a recurrent state for each
domain of a mixed log, and what latent members behind the account carry from one domain to the other.

Shapes: B batch, T history, M items, N items of a domain, X events of a domain, Q questions a log, D domains,
K members, E embedding width, H width of a state, W width of what answers are read from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.errors import SettingError
from lightgc2n.layers.asking import Asking, ask_at_the_end, ask_on_the_way
from lightgc2n.layers.crossentropy import linear_cross_entropy
from lightgc2n.layers.filters import FilterTransfer, Heard, Members, MembersOfTheGate, NoTransfer
from lightgc2n.layers.gated import GatedUnit, states_after
from lightgc2n.layers.roles import SplitAndJoin
from lightgc2n.layers.unrolling import side_by_side
from lightgc2n.models.contract import Model

# π-Net and PSJNet-I, PSJNet-II, and domains that are left alone
TRANSFERS: dict[str, type[FilterTransfer | SplitAndJoin | NoTransfer]] = {
    "filter": FilterTransfer,
    "split-and-join": SplitAndJoin,
    "none": NoTransfer,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConfig:
    """The authors' symbols stand in brackets."""

    width: int = setting(64, at_least=1, help="Width of items and members [e].")
    state_width: int = setting(0, at_least=0, help="Width of a state [d]; 0: as the embeddings.")
    members: int = setting(4, at_least=1, at_most=64, help="Latent members or roles behind an account [K].")
    transfer: str = setting("filter", choices=tuple(TRANSFERS), help="How one domain tells the other.")
    max_length: int = setting(50, at_least=1, help="Newest events of each domain that are read.")
    cuts: int = setting(0, at_least=0, help="Random places of each log that are trained on in an epoch; 0 for all.")
    dropout: float = setting(0.2, at_least=0.0, at_most=0.95, help="Share of every unit's input dropped in training.")
    candidate_uses_gate_member: bool = setting(False, help="The released code's slip: one map of members for both.")


class ParallelNet(Model):
    """What comes next in each domain: its own state, and what the other domain tells; the account is not asked."""

    domain_stops: Int[Tensor, "D"]

    def __init__(self, config: ParallelConfig, stops: Int[Tensor, "D"]) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("domain_stops", stops)
        ends = [0, *stops.tolist()]
        self.domains = [Domain(f"{number}", *ends[number : number + 2]) for number in range(len(stops))]
        width = config.state_width or config.width
        self.items = self._table(config.width)
        self.encoders = nn.ModuleList(GatedUnit(config.width, width) for _ in self.domains)
        members = MembersOfTheGate if config.candidate_uses_gate_member else Members
        self.transfers = nn.ModuleList(
            TRANSFERS[config.transfer](width, members(config.members, config.width, width), config.dropout)
            for _ in self.domains
        )
        self.outputs = self._table(width if config.transfer == "none" else 2 * width)  # O
        self.bias = nn.Parameter(torch.zeros(ends[-1]))  # o

    @classmethod
    def build(cls, config: ParallelConfig, train: Training) -> "ParallelNet":
        if len(train.domains) > 2:
            names = ", ".join(domain.name for domain in train.domains)
            raise SettingError(
                f"parallel nets read one domain or two; this data has {len(train.domains)} ({names}). "
                f"Take one with --domain, or import two."
            )
        return cls(config, torch.tensor([domain.stop for domain in train.domains]))

    @classmethod
    def restore(cls, config: ParallelConfig, tensors: Mapping[str, Tensor]) -> "ParallelNet":
        """The model that these tensors were saved from."""
        model = cls(config, tensors["domain_stops"])
        model.load_state_dict(dict(tensors))
        return model

    def carried(self) -> dict[str, str]:
        return dict.fromkeys(("items", "outputs", "bias"), "items")

    def encode(self) -> None:
        """Nothing: all depends on the history."""

    def losses(self, encoded: None, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """For each domain the mean cross-entropy over the questions that it has an answer to; their sum."""
        asking, targets = ask_on_the_way(batch, self.domains, self.config.max_length, self.config.cuts)
        answering = self._answering(range(len(self.domains)), asking)
        found = [self._loss(number, words, targets[..., number]) for number, words in enumerate(answering)]
        return {"next_item": torch.stack(found).sum()}

    @torch.no_grad()
    def scores(self, encoded: None, batch: Batch, domain: Domain) -> Float[Tensor, "B N"]:
        """A score for each item of the domain, which may be a part of the model's domains or span them."""
        asking = ask_at_the_end(batch, self.domains, self.config.max_length)
        met = [place for place, own in enumerate(self.domains) if own.start < domain.stop and domain.start < own.stop]
        answering = self._answering(met, asking)
        logits = torch.cat([self._logits(number, words) for number, words in zip(met, answering, strict=True)], dim=1)
        first = self.domains[met[0]].start
        return logits[:, domain.start - first : domain.stop - first]

    def _states(self, asking: Asking) -> list[Float[Tensor, "B _ H"]]:
        """The state of each domain after each of its own events."""
        prepared = []
        for view, domain, encoder in zip(asking.views, self.domains, self.encoders, strict=True):
            events = embedding(view.items + domain.start, self.items)  # x
            dropped = dropout(events, self.config.dropout, self.training)
            prepared.append(encoder.prepared(dropped, length=view.length))  # type: ignore[operator]
        return side_by_side(prepared)  # h_i = GRU(x_i, h_{i-1})

    def _answering(self, numbers: Sequence[int], asking: Asking) -> list[Float[Tensor, "B Q W"]]:
        """What the answers of some domains are read from: what the other domain tells, and the domain's own state."""
        states = self._states(asking)
        heard = [self._heard(number, asking, states) for number in numbers]
        told = TRANSFERS[self.config.transfer].tell([self.transfers[number] for number in numbers], heard)
        own = [states_after(states[number], asking.shown[number]) for number in numbers]
        return [torch.cat(pair, dim=-1) for pair in zip(told, own, strict=True)]  # [z ; h]

    def _heard(self, number: int, asking: Asking, states: list[Tensor]) -> Heard:
        source = len(states) - 1 - number  # a domain that is alone is its own source
        beside = states_after(states[number], asking.crossed(source))  # q_j = h_{π(j)}
        shown = asking.shown[source], asking.shown[number]
        return Heard(states[source], beside, asking.views[source].length, states[number], *shown)

    def _loss(self, number: int, answering: Float[Tensor, "B Q W"], target: Int[Tensor, "B Q"]) -> Float[Tensor, ""]:
        domain, asked = self.domains[number], target >= 0
        questions = dropout(answering[asked], self.config.dropout, self.training)
        weights = questions.new_full((len(questions),), 1 / max(1, len(questions)))
        own = slice(domain.start, domain.stop)
        local = target[asked] - domain.start
        return linear_cross_entropy(questions, self.outputs[own], local, weights, self.bias[own])

    def _logits(self, number: int, answering: Float[Tensor, "B 1 W"]) -> Float[Tensor, "B N"]:
        own = slice(self.domains[number].start, self.domains[number].stop)
        return torch.addmm(self.bias[own], answering[:, 0], self.outputs[own].T)  # [z ; h] O + o

    @torch.no_grad()
    def _table(self, width: int) -> nn.Parameter:
        """One row an item; the rows of each domain are drawn by their own number."""
        table = torch.empty(self.domains[-1].stop, width)
        for domain in self.domains:
            nn.init.xavier_normal_(table[domain.start : domain.stop])
        return nn.Parameter(table)


def parameter_count(config: ParallelConfig, accounts: int, items: int, domains: int = 1) -> int:
    """M(E + W + 1), and for each domain 3H(E + H + 1) and its transfer; W is 2H, and H without a transfer.

    The filter's transfer has K·E + 5H² + 2EH + 2H and 3H(2H + 1), that by split and join 3H² + K·H + 7H more; both have
    EH less with the released slip.
    """
    embedded, width = config.width, config.state_width or config.width
    maps = 1 if config.candidate_uses_gate_member else 2
    of_members = config.members * embedded + maps * embedded * width
    filtering = of_members + 5 * width**2 + 2 * width + 3 * width * (2 * width + 1)
    splitting = filtering + 3 * width**2 + config.members * width + 7 * width
    transfer = {"filter": filtering, "split-and-join": splitting, "none": 0}[config.transfer]
    answering = width if config.transfer == "none" else 2 * width
    unit = 3 * width * (embedded + width + 1)
    return items * (embedded + answering + 1) + domains * (unit + transfer)
