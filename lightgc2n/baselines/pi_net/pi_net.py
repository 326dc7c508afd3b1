"""π-Net (Ma et al., SIGIR 2019), which is PSJNet-I, and PSJNet-II (Sun et al., TKDE 2023): a GRU for each
domain of a mixed log, and a transfer between the domains by latent members of the account.

Shapes: B batch, T history, M items, N items of a domain, X events of a domain, Q queries a log, D domains,
K members, E embedding width, H width of a state, W width of the input of the output layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout

from lightgc2n.baselines.pi_net.batched_rnn import side_by_side
from lightgc2n.baselines.pi_net.domain_queries import (
    DomainQueries,
    queries_at_all_places,
    queries_at_the_end,
    queries_of_one_domain,
)
from lightgc2n.baselines.pi_net.gated_unit import GatedUnit, states_after
from lightgc2n.baselines.pi_net.shared_filter import (
    FilterTransfer,
    Members,
    MembersOfTheGate,
    NoTransfer,
    TransferInputs,
)
from lightgc2n.baselines.pi_net.split_and_join import SplitAndJoin
from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.devices import device_of
from lightgc2n.errors import SettingError
from lightgc2n.layers.crossentropy import linear_cross_entropy
from lightgc2n.layers.sparse import rows_of
from lightgc2n.models.contract import Model

# π-Net (PSJNet-I), PSJNet-II, and the ablation without transfer
TRANSFERS: dict[str, type[FilterTransfer | SplitAndJoin | NoTransfer]] = {
    "filter": FilterTransfer,
    "split-and-join": SplitAndJoin,
    "none": NoTransfer,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConfig:
    """The authors' symbols in brackets."""

    width: int = setting(64, at_least=1, help="Width of items and members [e].")
    state_width: int = setting(0, at_least=0, help="Width of a state [d]; 0: as the embeddings.")
    members: int = setting(4, at_least=1, at_most=64, help="Latent members or roles behind an account [K].")
    transfer: str = setting(
        "filter", choices=tuple(TRANSFERS), help="The transfer between domains: π-Net, PSJNet-II or none."
    )
    max_length: int = setting(50, at_least=1, help="Newest events of each domain that are read.")
    cuts: int = setting(0, at_least=0, help="Random places of each log that are trained on in each epoch; 0 for all.")
    dropout: float = setting(0.2, at_least=0.0, at_most=0.95, help="Share of every unit's input dropped in training.")
    candidate_uses_gate_member: bool = setting(
        False, help="As in the released code: the candidate uses the members' map of the gate."
    )


class ParallelNet(Model):
    """Each domain scores its items from its own state and the transfer of the other; the account is not used."""

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
                f"pi-net and psjnet-2 read one or two domains; this data has {len(train.domains)} ({names}). "
                f"Select one domain, or import two."
            )
        return cls(config, torch.tensor([domain.stop for domain in train.domains]))

    @classmethod
    def restore(cls, config: ParallelConfig, tensors: Mapping[str, Tensor]) -> "ParallelNet":
        """Rebuild the model from its saved tensors."""
        model = cls(config, tensors["domain_stops"])
        model.load_state_dict(dict(tensors))
        return model

    def warm_start_tensors(self) -> dict[str, str]:
        return dict.fromkeys(("items", "outputs", "bias"), "items")

    @property
    def cuda_graph_safe(self) -> bool:
        """With a single domain every place has a query, so that the shapes do not depend on the events."""
        return len(self.domains) == 1 and not self.config.cuts

    @property
    def captured_length(self) -> int:
        return 320  # padding costs these layers little

    def encode(self) -> None:
        """Nothing to precompute: all depends on the history."""

    def losses(self, encoded: None, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """The sum over domains of the mean cross-entropy over the queries that have a target in the domain."""
        if self.cuda_graph_safe and batch.domain_targets is None and device_of(batch.log).has_cuda_graphs:
            return {"next_item": self._loss_of_one_domain(batch)}
        queries, targets = queries_at_all_places(batch, self.domains, self.config.max_length, self.config.cuts)
        features_by_domain = self._output_features(range(len(self.domains)), queries)
        losses = [
            self._loss(number, features, targets[..., number]) for number, features in enumerate(features_by_domain)
        ]
        return {"next_item": torch.stack(losses).sum()}

    def _loss_of_one_domain(self, batch: TrainingBatch) -> Float[Tensor, ""]:
        """The loss of a single domain in fixed shapes; a target that is padding has weight 0."""
        queries, at = queries_of_one_domain(batch, self.config.max_length)
        features = self._output_features([0], queries)[0].flatten(0, 1)
        dropped = dropout(rows_of(features, at), self.config.dropout, self.training)
        return linear_cross_entropy(dropped, self.outputs, batch.target, batch.share, self.bias)

    @torch.no_grad()
    def scores(self, encoded: None, batch: Batch, domain: Domain) -> Float[Tensor, "B N"]:
        """A score for each item of the domain, which may be a part of the model's domains or span them."""
        queries = queries_at_the_end(batch, self.domains, self.config.max_length)
        met = [place for place, own in enumerate(self.domains) if own.start < domain.stop and domain.start < own.stop]
        features_by_domain = self._output_features(met, queries)
        logits = torch.cat(
            [self._logits(number, features) for number, features in zip(met, features_by_domain, strict=True)], dim=1
        )
        first = self.domains[met[0]].start
        return logits[:, domain.start - first : domain.stop - first]

    def _states(self, queries: DomainQueries) -> list[Float[Tensor, "B _ H"]]:
        """The state of each domain after each of its own events."""
        prepared = []
        for number, (view, domain) in enumerate(zip(queries.views, self.domains, strict=True)):
            events = rows_of(self.items, view.items + domain.start)  # x
            dropped = dropout(events, self.config.dropout, self.training)
            encoder = cast(GatedUnit, self.encoders[number])
            prepared.append(encoder.prepared(dropped, length=queries.lengths(number)))
        return side_by_side(prepared)  # h_i = GRU(x_i, h_{i-1})

    def _output_features(self, numbers: Sequence[int], queries: DomainQueries) -> list[Float[Tensor, "B Q W"]]:
        """The input of the output layer of each domain: the transfer of the other domain, and its own state."""
        states = self._states(queries)
        transfer_inputs = [self._transfer_inputs(number, queries, states) for number in numbers]
        pooled = TRANSFERS[self.config.transfer].run_all(
            [self.transfers[number] for number in numbers], transfer_inputs
        )
        own = [states_after(states[number], queries.shown[number]) for number in numbers]
        return [torch.cat(pair, dim=-1) for pair in zip(pooled, own, strict=True)]  # [z ; h]

    def _transfer_inputs(self, number: int, queries: DomainQueries, states: list[Tensor]) -> TransferInputs:
        source = len(states) - 1 - number  # a single domain is its own source
        beside = states_after(states[number], queries.crossed(source))  # q_j = h_{π(j)}
        shown = queries.shown[source], queries.shown[number]
        return TransferInputs(states[source], beside, queries.lengths(source), states[number], *shown)

    def _loss(self, number: int, features: Float[Tensor, "B Q W"], target: Int[Tensor, "B Q"]) -> Float[Tensor, ""]:
        domain, has_target = self.domains[number], target >= 0
        queries = dropout(features[has_target], self.config.dropout, self.training)
        weights = queries.new_full((len(queries),), 1 / max(1, len(queries)))
        own = slice(domain.start, domain.stop)
        local = target[has_target] - domain.start
        return linear_cross_entropy(queries, self.outputs[own], local, weights, self.bias[own])

    def _logits(self, number: int, features: Float[Tensor, "B 1 W"]) -> Float[Tensor, "B N"]:
        own = slice(self.domains[number].start, self.domains[number].stop)
        return torch.addmm(self.bias[own], features[:, 0], self.outputs[own].T)  # [z ; h] O + o

    @torch.no_grad()
    def _table(self, width: int) -> nn.Parameter:
        """One row for each item; the rows of each domain are initialised by their own number."""
        table = torch.empty(self.domains[-1].stop, width)
        for domain in self.domains:
            nn.init.xavier_normal_(table[domain.start : domain.stop])
        return nn.Parameter(table)
