"""LightGC²N edge by edge in plain torch operations: the yardstick of speed for the fast layers.

It reads the parameters of a model and computes the same losses.
Shapes: E edges, A latent users, D capsule width.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from lightgc2n.data.batches import TrainingBatch
from lightgc2n.layers.squash import squash
from lightgc2n.models.lightgc2n.capsules import attention_map
from lightgc2n.models.lightgc2n.convolution import CapsuleLayer
from lightgc2n.models.lightgc2n.subspaces import refine, subspace_affinity


def plain_losses(model: Any, batch: TrainingBatch) -> dict[str, Float[Tensor, ""]]:
    """The losses of a full LightGC2N without dropout, and nothing shared, sorted or left out on the way."""
    items, users = _capsules(model)
    coupling = model.convolution.routing.start.expand_as(users)
    for _ in range(model.config.routing_steps):
        routed = squash(coupling * users).sum(dim=1)  # Eq. 12
        coupling = coupling + model.convolution.routing.agree(users * routed[:, None])  # Eq. 13
    bases = model.alignment.bases
    refined = refine(items, bases, subspace_affinity(items, bases, model.config.smoothing))  # Eq. 15, 16
    rows = model.alignment.norm(normalize(items, dim=-1) + model.alignment.mix(refined))  # Eq. 19
    row, place = torch.nonzero(batch.counts, as_tuple=True)
    weights = (torch.arange(batch.log.shape[1], device=place.device) <= place[:, None]).float()
    if model.config.pooling == "mean":
        weights = weights / weights.sum(dim=1, keepdim=True)
    sequences = (rows[batch.log[row]] * weights[..., None]).sum(dim=1)  # Eq. 14
    logits = model.head(torch.cat([sequences, routed[batch.account[row]]], dim=-1))  # Eq. 20
    next_item = cross_entropy(logits, batch.next_item[batch.counts])  # Eq. 21
    return {"next_item": next_item, "contrast": model.config.contrast_weight * _contrast(model, items, refined, batch)}


def _capsules(model: Any) -> tuple[Float[Tensor, "M D"], Float[Tensor, "N A D"]]:
    """Items and latent users of every account, summed over all layers."""
    convolution = model.convolution
    held = _edges(model.graph.held_offsets, model.graph.held_items)
    step = _edges(model.graph.step_offsets, model.graph.step_items)
    embeddings = model.item_embeddings
    items = squash(convolution.to_items.project(embeddings @ attention_map(embeddings)))  # Eq. 3
    users = squash(convolution.to_users(model.account_embeddings))  # Eq. 4
    all_items, all_users = items, users
    for layer in convolution.layers:
        items, users = _layer(layer, items, users, held, step)
        all_items, all_users = all_items + items, all_users + users  # Eq. 11
    return all_items, all_users


def _layer(
    layer: CapsuleLayer,
    items: Float[Tensor, "M D"],
    users: Float[Tensor, "N A D"],
    held: tuple[Tensor, Tensor, Tensor],
    step: tuple[Tensor, Tensor, Tensor],
) -> tuple[Float[Tensor, "M D"], Float[Tensor, "N A D"]]:
    account, item, weight = held
    match = layer.scale() * (users[account] * items[item][:, None, :]).sum(dim=-1)
    halves = torch.zeros_like(users[..., 0]).index_add(0, account, match.exp().sqrt())
    attention = match.exp() / halves[account]  # Eq. 5
    plain = layer.from_items(items[item]) * weight[:, None]
    message = plain[:, None, :] + layer.from_matches(attention[..., None] * items[item][:, None, :])  # Eq. 6
    heard = torch.zeros_like(users).index_add(0, account, message)
    to_item = (layer.from_users(users[account]) * weight[:, None, None]).sum(dim=1)  # Eq. 9
    after, before, step_weight = step
    from_before = layer.from_before(items[before]) * step_weight[:, None]  # Eq. 9
    told = torch.zeros_like(items).index_add(0, item, to_item).index_add(0, after, from_before)  # Eq. 10
    return squash(told), squash(heard + layer.from_self(users))  # Eq. 7, 8


def _edges(offsets: Int[Tensor, "R_and_one"], columns: Int[Tensor, "E"]) -> tuple[Tensor, Tensor, Tensor]:
    degree = offsets.diff()
    rows = torch.repeat_interleave(torch.arange(len(degree), device=degree.device), degree)
    others = torch.bincount(columns)
    return rows, columns, (degree[rows] * others[columns]).float().rsqrt()


def _contrast(
    model: Any, items: Float[Tensor, "M D"], refined: Float[Tensor, "M D"], batch: TrainingBatch
) -> Float[Tensor, ""]:
    """Eq. 17 at every place of the batch."""
    here = batch.log[batch.seen]
    everything = torch.arange(len(items), device=here.device)
    others = everything if model.config.negatives == "all" else torch.unique(here)
    logits = normalize(items[here], dim=-1) @ refined[others].T / model.config.temperature
    same = torch.searchsorted(others, here)
    return cross_entropy(logits, same)  # Eq. 17, 18
