"""The six ablations: the same class with one part replaced, and nothing left over."""

import ast
import inspect
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from lightgc2n.models.lightgc2n import lightgc2n as module
from lightgc2n.models.lightgc2n.ablations import VARIANTS
from lightgc2n.models.lightgc2n.capsules import DynamicRouting, LinearAttention, OneCapsule, SumOfUsers
from lightgc2n.models.lightgc2n.convolution import CapsuleConvolution, NoConvolution, PlainConvolution
from lightgc2n.models.lightgc2n.lightgc2n import LightGC2N
from lightgc2n.models.lightgc2n.subspaces import NoAlignment, SubspaceAlignment
from tests.models.small import SPLIT, asked_batch, model_of, one_batch, scores, total_loss
from tests.restoring import saved_and_restored

# variant -> convolution, items to capsules, routing, alignment, weight of the contrast
USUAL = (CapsuleConvolution, LinearAttention, DynamicRouting, SubspaceAlignment, 0.8)
PARTS = {
    "lightgc2n": USUAL,
    "lightgc2n-wo-la": (CapsuleConvolution, OneCapsule, DynamicRouting, SubspaceAlignment, 0.8),
    "lightgc2n-wo-dr": (CapsuleConvolution, LinearAttention, SumOfUsers, SubspaceAlignment, 0.8),
    "lightgc2n-wo-c": (PlainConvolution, None, None, SubspaceAlignment, 0.8),
    "lightgc2n-wo-cl": (CapsuleConvolution, LinearAttention, DynamicRouting, SubspaceAlignment, 0.0),
    "lightgc2n-wo-s": (CapsuleConvolution, LinearAttention, DynamicRouting, NoAlignment, 0.0),
    "lightgc2n-wo-a": (NoConvolution, None, None, NoAlignment, 0.0),
}


def test_every_variant_is_listed_here() -> None:
    assert PARTS.keys() == VARIANTS.keys()


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_the_model_with_another_part(name: str) -> None:
    model = model_of(name)
    assert type(model) is LightGC2N
    inside = [getattr(model.convolution, part, None) for part in ("to_items", "routing")]
    kinds = [None if part is None else type(part) for part in inside]
    actual = (type(model.convolution), *kinds, type(model.alignment), model.config.contrast_weight)
    assert actual == PARTS[name]


def test_the_model_has_no_subclass_and_no_branch_on_its_variant() -> None:
    assert LightGC2N.__subclasses__() == []
    tree = ast.parse(inspect.getsource(module))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not [name for name in names | words if "variant" in name.lower() or name in ("isinstance", "type")]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    model = model_of(name)
    model.start_epoch(1)
    total_loss(model, one_batch()).backward()
    without = [key for key, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert without == []


@pytest.mark.parametrize("name", VARIANTS)
def test_every_account_and_item_gets_a_gradient(name: str) -> None:
    model = model_of(name)
    total_loss(model, one_batch()).backward()
    assert model.account_embeddings.grad is not None
    assert model.item_embeddings.grad is not None
    assert model.account_embeddings.grad.any(dim=1).all()
    # An item that is only ever the last event of a log is an answer, never a question: w/o A gives it the head alone.
    asked = torch.unique(one_batch().log[one_batch().seen])
    assert model.item_embeddings.grad[asked].any(dim=1).all()


def test_without_contrast_only_the_loss_changes() -> None:
    model, without = model_of(), model_of("lightgc2n-wo-cl")
    assert_close(scores(model, asked_batch()), scores(without, asked_batch()), rtol=0, atol=0)
    assert list(without.losses(without.encode(), one_batch())) == ["next_item"]


def test_one_step_of_routing_leaves_the_coupling_as_it_was_drawn() -> None:
    """Eq. 13 is then never used, so its weights have no gradient; the optimiser passes them over."""
    model = model_of(routing_steps=1)
    total_loss(model, one_batch()).backward()
    idle = [key for key, parameter in model.named_parameters() if parameter.grad is None]
    assert idle == ["convolution.routing.agree.weight"]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_saved_variant_is_the_same(name: str, tmp_path: Path) -> None:
    model = model_of(name, latent_users=2, capsule_width=5)
    again = saved_and_restored(name, model, tmp_path)
    assert again.config == model.config
    assert isinstance(again, LightGC2N)
    assert_close(scores(again.eval(), asked_batch()), scores(model, asked_batch()), rtol=0, atol=0)
    assert again.graph.held_items.tolist() == model.graph.held_items.tolist()
    assert len(again.account_embeddings) == SPLIT.train.accounts
