"""LightGC²N and its six ablations (Table 2): the same model, each ablation with one part replaced."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from lightgc2n.data.splits import Training
from lightgc2n.graph.sequential import SequentialGraph, build_graph, graph_from
from lightgc2n.models.lightgc2n.capsules import (
    DynamicRouting,
    LinearAttention,
    OneCapsule,
    PointwiseConvolution,
    SumOfUsers,
)
from lightgc2n.models.lightgc2n.convolution import (
    CapsuleConvolution,
    GraphSums,
    NoConvolution,
    PlainConvolution,
)
from lightgc2n.models.lightgc2n.lightgc2n import LightGC2N, LightGC2NConfig, Parts
from lightgc2n.models.lightgc2n.subspaces import NoAlignment, SubspaceAlignment

Make = Callable[[LightGC2NConfig, SequentialGraph], Parts]


def _capsules(
    config: LightGC2NConfig,
    graph: SequentialGraph,
    to_items: nn.Module | None = None,
    routing: DynamicRouting | SumOfUsers | None = None,
) -> CapsuleConvolution:
    width, capsule = config.embedding_width, config.capsule_width
    to_items = to_items or LinearAttention(width, capsule)
    routing = routing or DynamicRouting(config.latent_users, capsule, config.routing_steps)
    to_users = PointwiseConvolution(width, config.latent_users, capsule)
    return CapsuleConvolution(GraphSums(graph), to_items, to_users, routing, capsule, config.layers)


def _alignment(config: LightGC2NConfig) -> SubspaceAlignment:
    return SubspaceAlignment(config.latent_users, config.capsule_width, config.smoothing)


def _full(config: LightGC2NConfig, graph: SequentialGraph) -> Parts:
    return Parts(_capsules(config, graph), _alignment(config))


def _without_linear_attention(config: LightGC2NConfig, graph: SequentialGraph) -> Parts:
    one = OneCapsule(config.embedding_width, config.capsule_width)
    return Parts(_capsules(config, graph, to_items=one), _alignment(config))


def _without_routing(config: LightGC2NConfig, graph: SequentialGraph) -> Parts:
    return Parts(_capsules(config, graph, routing=SumOfUsers()), _alignment(config))


def _without_capsules(config: LightGC2NConfig, graph: SequentialGraph) -> Parts:
    plain = PlainConvolution(GraphSums(graph), config.embedding_width, config.capsule_width, config.layers)
    return Parts(plain, _alignment(config))


def _without_alignment(config: LightGC2NConfig, graph: SequentialGraph) -> Parts:
    return Parts(_capsules(config, graph), NoAlignment())


def _without_all(config: LightGC2NConfig, graph: SequentialGraph) -> Parts:
    return Parts(NoConvolution(config.embedding_width, config.capsule_width), NoAlignment())


# w/o CL keeps every part and sets the weight of the contrast to 0; w/o S and w/o A have no refined items to contrast.
VARIANTS: dict[str, tuple[Make, dict[str, Any]]] = {
    "lightgc2n": (_full, {}),
    "lightgc2n-wo-la": (_without_linear_attention, {}),
    "lightgc2n-wo-dr": (_without_routing, {}),
    "lightgc2n-wo-c": (_without_capsules, {}),
    "lightgc2n-wo-cl": (_full, {"contrast_weight": 0.0}),
    "lightgc2n-wo-s": (_without_alignment, {"contrast_weight": 0.0}),
    "lightgc2n-wo-a": (_without_all, {"contrast_weight": 0.0}),
}


def build_variant(name: str, config: LightGC2NConfig, train: Training) -> LightGC2N:
    """Build the model or one of its ablations on the graph of the training sequences."""
    return make_variant(name, config, build_graph(train, config.graph_events))


def restore_variant(name: str, config: LightGC2NConfig, tensors: Mapping[str, Tensor]) -> LightGC2N:
    """Rebuild the model from its saved tensors."""
    arrays = {key.removeprefix("graph."): value.numpy() for key, value in tensors.items() if key.startswith("graph.")}
    model = make_variant(name, config, graph_from(arrays))
    model.load_state_dict(dict(tensors))
    return model


def make_variant(name: str, config: LightGC2NConfig, graph: SequentialGraph) -> LightGC2N:
    """Make the model or one of its ablations on a graph, its weights drawn from torch's generator."""
    make, forced = VARIANTS[name]
    config = replace(config, **forced)
    return LightGC2N(config, graph, make(config, graph))
