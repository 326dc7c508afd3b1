"""DisenReason-style: a reconstruction, not the published model. Latent users are extracted one after the other.

Only the abstract of DisenReason (Cheng et al., arXiv 2603.03782, 2026) and digests of it could be read; there is no
public code. They say: frequency bands give one vector of the account, the pivot; latent users are extracted from it
step by step until two in a row are too similar, so their number differs by account. All equations are this project's.
Call its results "DisenReason-style (reconstructed)".

Shapes: B batch, I queries, L places read, M items, N items of a domain, Q bands, F frequencies, K most users,
R read-outs, D width.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, gelu, linear, normalize, pad

from lightgc2n.config import setting
from lightgc2n.data.batches import Batch, TrainingBatch, draw_places, histories_before
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import UNSEEN, Training
from lightgc2n.layers.attention import softmax_over
from lightgc2n.layers.sampled_losses import mean_softmax
from lightgc2n.models.contract import Model

FIRST_DEVIATION = 0.02  # standard deviation of the initial filters of the bands
FIRST_REMOVAL = 0.5  # W_r starts as this multiple of the identity


@dataclass(frozen=True, slots=True, kw_only=True)
class DisenReasonConfig:
    """Values of the reconstruction; the paper's are unknown."""

    width: int = setting(64, at_least=1, help="Width of items, account and latent users [d].")
    bands: int = setting(3, at_least=1, at_most=32, help="Frequency bands [M].")
    filter: str = setting("learned", choices=("learned", "none"), help="A learned frequency filter, or none [Θ].")
    fusion: str = setting(
        "attention", choices=("attention", "gate", "mean"), help="How bands are combined into the pivot."
    )
    max_users: int = setting(5, at_least=1, at_most=32, help="Most latent users of one account [K_max].")
    threshold: float = setting(
        0.8,
        at_least=-1.0,
        at_most=1.0,
        help="Cosine to the previous latent user above which extraction stops; 1 never stops [τ].",
    )
    readout: str = setting(
        "weighted",
        choices=("weighted", "max"),
        help="Score by all latent users together, or by the best for each item.",
    )
    diversity: float = setting(0.1, at_least=0.0, help="Weight of the diversity term of latent users [λ_d].")
    account: bool = setting(False, help="Add a vector of the account to the pivot.")
    account_dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of accounts hidden in training.")
    max_length: int = setting(50, at_least=1, help="Newest events that are read [L].")
    cuts: int = setting(4, at_least=1, help="Random places of each log that are trained on in each epoch.")
    dropout: float = setting(0.1, at_least=0.0, at_most=0.95, help="Share of features dropped in training.")


def frequencies_of(length: int) -> int:
    """The number of frequencies of the real FFT."""
    return length // 2 + 1


class Bands(nn.Module):
    """Bands of equal width, the last one perhaps narrower; without a filter they sum to the sequence."""

    inside: Float[Tensor, "F Q"]

    def __init__(self, length: int, bands: int) -> None:
        super().__init__()
        self.length = length
        frequency = torch.arange(frequencies_of(length))
        band = frequency // -(-len(frequency) // bands)
        self.register_buffer("inside", (band[:, None] == torch.arange(bands)).float(), persistent=False)

    def forward(self, events: Float[Tensor, "I L D"]) -> Float[Tensor, "I L Q D"]:
        spectrum = torch.fft.rfft(events, dim=1, norm="ortho") * self.factors()  # Θ ⊙ Z
        parts = self.inside[:, :, None] * spectrum[:, :, None]
        return torch.fft.irfft(parts, n=self.length, dim=1, norm="ortho")  # B_q

    def factors(self) -> Tensor:
        """The factor of every frequency."""
        return self.inside.new_ones(())


class FilteredBands(Bands):
    """Bands after a learned filter: one complex factor for each frequency and feature."""

    def __init__(self, length: int, bands: int, width: int) -> None:
        super().__init__(length, bands)
        ones = torch.view_as_real(torch.ones(frequencies_of(length), width, dtype=torch.complex64))
        self.filter = nn.Parameter(ones + FIRST_DEVIATION * torch.randn_like(ones))

    def factors(self) -> Tensor:
        return torch.view_as_complex(self.filter)


class EvenFusion(nn.Module):
    """All bands have equal weight."""

    def forward(self, summaries: Float[Tensor, "I Q D"]) -> Float[Tensor, "I Q"]:
        return torch.full_like(summaries[..., 0], 1 / summaries.shape[1])


class GateFusion(nn.Module):
    """A gate for each band, from its own summary."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)  # W_f, b_f
        self.outer = nn.Parameter(FIRST_DEVIATION * torch.randn(width))  # v

    def logits(self, summaries: Float[Tensor, "I Q D"]) -> Float[Tensor, "I Q"]:
        return torch.tanh(self.inner(summaries)) @ self.outer

    def forward(self, summaries: Float[Tensor, "I Q D"]) -> Float[Tensor, "I Q"]:
        return torch.sigmoid(self.logits(summaries))


class AttentionFusion(GateFusion):
    """Softmax weights over the bands."""

    def forward(self, summaries: Float[Tensor, "I Q D"]) -> Float[Tensor, "I Q"]:
        return torch.softmax(self.logits(summaries), dim=1)  # β


@dataclass(frozen=True)
class Inferred:
    """The account vector of a history, its latent users, and a mask of those that count."""

    pivot: Float[Tensor, "I D"]
    users: Float[Tensor, "I K D"]
    active: Bool[Tensor, "I K"]
    newest: Float[Tensor, "I D"]  # the newest event


class BestUser(nn.Module):
    """One output vector for each latent user; inactive users repeat the first, which changes no maximum."""

    def forward(self, inferred: Inferred) -> Float[Tensor, "I K D"]:
        return inferred.pivot[:, None] + torch.where(inferred.active[..., None], inferred.users, inferred.users[:, :1])


class AllUsers(nn.Module):
    """One output vector: the latent users, weighted by how well the newest event fits each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.newest = nn.Linear(width, width, bias=False)  # W_g

    def forward(self, inferred: Inferred) -> Float[Tensor, "I 1 D"]:
        fit = torch.einsum("ikd,id->ik", inferred.users, self.newest(inferred.newest))
        share = torch.softmax(fit.masked_fill(~inferred.active, -torch.inf), dim=1)  # γ; the first is always active
        return (inferred.pivot + torch.einsum("ik,ikd->id", share, inferred.users))[:, None]  # z


class DisenReasonStyle(Model):
    """Scores by latent users whose number is inferred from the history."""

    def __init__(self, config: DisenReasonConfig, accounts: int, items: int) -> None:
        super().__init__()
        self.config = config
        width, length = config.width, config.max_length
        self.items = nn.Parameter(torch.empty(items, width))
        self.accounts = nn.Parameter(torch.empty(accounts, width)) if config.account else None
        self.from_account = nn.Linear(width, width, bias=False) if config.account else None  # W_acc
        self.positions = nn.Parameter(torch.empty(length, width))
        self.input_norm = nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)  # FFN, of both stages
        self.band_norm = nn.LayerNorm(width)
        self.importance = nn.Parameter(torch.empty(1, width))  # w_a
        self.fusion = {"attention": AttentionFusion, "gate": GateFusion}.get(config.fusion, _even)(width)
        self.steps = nn.Parameter(torch.empty(config.max_users, width))  # s
        self.ask, self.recall = (nn.Linear(width, width, bias=False) for _ in range(2))  # W_q, W_m
        self.user_norm, self.rest_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.readout = AllUsers(width) if config.readout == "weighted" else BestUser()
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=FIRST_DEVIATION)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        # Parameters with another initialisation follow the loop.
        self.removal = nn.Parameter(FIRST_REMOVAL * torch.eye(width))  # W_r
        learned = config.filter == "learned"
        self.bands = FilteredBands(length, config.bands, width) if learned else Bands(length, config.bands)

    @classmethod
    def build(cls, config: DisenReasonConfig, train: Training) -> "DisenReasonStyle":
        return cls(config, train.accounts, train.items)

    @classmethod
    def restore(cls, config: DisenReasonConfig, tensors: dict[str, Tensor]) -> "DisenReasonStyle":
        model = cls(config, len(tensors["accounts"]) if config.account else 0, len(tensors["items"]))
        model.load_state_dict(tensors)
        return model

    def warm_start_tensors(self) -> dict[str, str]:
        return {"items": "items"} | ({"accounts": "accounts"} if self.config.account else {})

    def encode(self) -> Float[Tensor, "M D"]:
        """The embeddings that items are scored with."""
        return self.items

    def losses(self, encoded: Float[Tensor, "M D"], batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
        """The mean over sampled places.

        A spectrum depends on all events at once, so every place needs its own pass.
        """
        row, place = draw_places(batch.counts, self.config.cuts)
        hidden = torch.rand(len(row), device=row.device) < self.config.account_dropout
        account = torch.where(hidden & self.training, UNSEEN, batch.account[row])
        target = batch.next_item[row, place]
        inferred = self.reason(account, batch.log, row, place)
        outputs = self.readout(inferred)
        best = torch.einsum("ird,id->ir", outputs, embedding(target, encoded)).argmax(dim=1)
        chosen = outputs[torch.arange(len(row), device=row.device), best]
        apart = self.config.diversity * similarity_penalty(inferred.users, inferred.active, self.config.threshold)
        return {"next_item": mean_softmax(chosen, encoded, target), "diversity": apart}

    @torch.no_grad()
    def scores(self, encoded: Float[Tensor, "M D"], batch: Batch, domain: Domain) -> Float[Tensor, "B N"]:
        outputs = self.readout(self.of_histories(batch))
        best = outputs[:, 0] @ encoded.T
        for other in range(1, outputs.shape[1]):
            torch.maximum(best, outputs[:, other] @ encoded.T, out=best)
        return best[:, domain.start : domain.stop]

    @torch.no_grad()
    def fold_in_scores(self, encoded: Float[Tensor, "M D"], batch: Batch, domain: Domain) -> Float[Tensor, "B N"]:
        """Scores from the history alone."""
        return self.scores(encoded, batch.without_account, domain)

    def of_histories(self, batch: Batch) -> Inferred:
        """Account vector and latent users of whole histories."""
        row = torch.arange(len(batch.length), device=batch.length.device)
        return self.reason(batch.account, batch.history, row, batch.length - 1)

    def reason(
        self, account: Int[Tensor, "I"], log: Int[Tensor, "B T"], row: Int[Tensor, "I"], place: Int[Tensor, "I"]
    ) -> Inferred:
        """Account vector and latent users after the given places of logs."""
        items, known = histories_before(log, row, place, self.config.max_length, newest_first=True)
        items, known = items.flip(1), known.flip(1)  # the newest event last, padding first
        bands = self.of_bands(items, known)
        summaries = self.summaries(bands, known)
        share = self.fusion(summaries)
        memory = torch.einsum("iq,iwqd->iwd", share, bands)  # H_mem
        pivot = torch.einsum("iq,iqd->id", share, summaries) + self.of_accounts(account)  # p
        users, active = self.user_vectors(pivot, memory, known)
        return Inferred(pivot, users, active, memory[:, -1])

    def of_bands(self, items: Int[Tensor, "I W"], known: Bool[Tensor, "I W"]) -> Float[Tensor, "I W Q D"]:
        """h: the events in each band; zero on padding."""
        width = items.shape[1]
        events = embedding(items, self.items) + self.positions[-width:]
        events = self.input_norm(dropout(events, self.config.dropout, self.training)) * known[..., None]  # X
        # The spectrum always has L places; only places with events are kept.
        bands = self.bands(pad(events, (0, 0, self.config.max_length - width, 0)))[:, -width:].flatten(0, 1)  # B
        at = known.flatten().nonzero()[:, 0]
        packed = bands.index_select(0, at)
        packed = self.band_norm(packed + self.feed_forward(packed))
        return torch.zeros_like(bands).index_copy(0, at, packed).view(*items.shape, *bands.shape[1:])

    def summaries(self, bands: Float[Tensor, "I W Q D"], known: Bool[Tensor, "I W"]) -> Float[Tensor, "I Q D"]:
        """g: one vector for each band."""
        weights = softmax_over(known[:, None], (bands @ self.importance[0]).mT)  # a
        return torch.einsum("iqw,iwqd->iqd", weights, bands)

    def of_accounts(self, account: Int[Tensor, "I"]) -> Float[Tensor, "I D"]:
        """W_acc p_a; zero for an unseen account, and without `account`."""
        if self.accounts is None or self.from_account is None:
            return self.items.new_zeros(len(account), self.config.width)
        return self.from_account(embedding(account.clamp(min=0), self.accounts)) * (account >= 0)[:, None]

    def user_vectors(
        self, pivot: Float[Tensor, "I D"], memory: Float[Tensor, "I W D"], known: Bool[Tensor, "I W"]
    ) -> tuple[Float[Tensor, "I K D"], Bool[Tensor, "I K"]]:
        """Latent users, each extracted from the residual of those before; and a mask of those that count."""
        rest, users = pivot, []  # ρ_0
        keys = self.recall(memory)
        for step in self.steps:
            query = self.ask(rest) + step  # q_k
            fit = torch.einsum("id,iwd->iw", query, keys) / self.config.width**0.5
            attended = torch.einsum("iw,iwd->id", softmax_over(known, fit), memory)
            user = self.user_norm(self.feed_forward(attended) + query)  # u_k
            rest = self.rest_norm(rest - linear(user, self.removal))  # ρ_k
            users.append(user)
        vectors = torch.stack(users, dim=1)
        return vectors, before_repetition(vectors, self.config.threshold)

    def feed_forward(self, vectors: Float[Tensor, "*any D"]) -> Float[Tensor, "*any D"]:
        """The feed-forward layer that both stages share."""
        return self.outer(dropout(gelu(self.inner(vectors)), self.config.dropout, self.training))


def _even(width: int) -> EvenFusion:
    return EvenFusion()


@torch.no_grad()
def before_repetition(users: Float[Tensor, "I K D"], threshold: float) -> Bool[Tensor, "I K"]:
    """A mask of the users before the first one that is too similar to the one before it."""
    unit = normalize(users, dim=-1)
    alike = (unit[:, 1:] * unit[:, :-1]).sum(dim=-1).clamp(max=1)
    goes_on = pad(alike <= threshold, (1, 0), value=True)
    return goes_on.cumprod(dim=1).bool()


def similarity_penalty(
    users: Float[Tensor, "I K D"], active: Bool[Tensor, "I K"], threshold: float
) -> Float[Tensor, ""]:
    """The mean of max(0, cos - τ)² over pairs of active users."""
    unit = normalize(users, dim=-1)
    pairs = (active[:, :, None] & active[:, None]).triu(diagonal=1)
    excess = (unit @ unit.mT - threshold).clamp(min=0).square()
    return (excess * pairs).sum() / pairs.sum().clamp(min=1)
