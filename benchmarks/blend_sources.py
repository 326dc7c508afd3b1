"""What each source of the blend, and each kind of joining, brings to trained runs of lightgc2n-plus.

    python benchmarks/blend_sources.py refit RUN... --out DIR [--device cuda] [--cross-fit]
    python benchmarks/blend_sources.py table DIR

`refit` fits the blend of each run again, once for every variant, on the run's own weights and validation queries, and
ranks the test targets. `--cross-fit` also ranks the validation queries: those of half of the accounts by a blend that
was fitted to the other half. DIR/RUN.npz then holds the reciprocal ranks (MRR@20) and hits (RC@20) of every variant.

`table` pools the runs of each dataset (NAME-seed0, NAME-seed1 and so on are seeds of NAME) and prints the difference of
every variant to the whole blend, with the paired test over accounts.
"""

import argparse
import copy
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from lightgc2n.data.split_types import Queries, Split
from lightgc2n.metrics.paired_tests import paired_against
from lightgc2n.metrics.ranking import hit, reciprocal_rank
from lightgc2n.metrics.ranks import batches_in_domains, ranks_in_domains
from lightgc2n.models.contract import Origin
from lightgc2n.models.plus import blend
from lightgc2n.models.plus.blend import HISTORY_SOURCES, history_shares
from lightgc2n.models.plus.plus import LightGC2NPlus
from lightgc2n.models.plus.trends import HALF_LIVES, Trends
from lightgc2n.training.run import finish, open_data, ready_for_test
from lightgc2n.training.runs import load_run, plan_of

WHOLE, ALONE = "whole blend", "without the blend"
ONE_SCALE = (1e-3,)


@contextmanager
def without(*dropped: str) -> Iterator[None]:
    """Fit and score without some sources: their shares are 0."""
    trend_shares = Trends.shares

    def of_history(*words: Any) -> Iterator[torch.Tensor]:
        for name, share in zip(HISTORY_SOURCES, history_shares(*words), strict=True):
            yield share * (name not in dropped)

    def of_trends(*words: Any) -> Iterator[torch.Tensor]:
        for half_life, share in zip(HALF_LIVES, trend_shares(*words), strict=True):
            yield share * (f"trend of {half_life:g} days" not in dropped)

    with patch.object(blend, "history_shares", of_history), patch.object(Trends, "shares", of_trends):
        yield


@contextmanager
def one_scale() -> Iterator[None]:
    with patch.object(blend, "SCALES", ONE_SCALE):
        yield


@contextmanager
def without_mixture() -> Iterator[None]:
    """Log-linear alone: the mixture is all but the learned model, whose logarithm is a feature anyway."""

    def learned_alone(shares: torch.Tensor) -> torch.Tensor:
        return torch.eye(shares.shape[1], device=shares.device)[0] * (1 - 1e-7)

    with patch.object(blend, "fit_mixture", learned_alone):
        yield


@contextmanager
def mixture_alone() -> Iterator[None]:
    def last(features: torch.Tensor, *words: Any) -> torch.Tensor:
        return torch.eye(features.shape[-1], device=features.device)[-1]

    with patch.object(blend, "fit_weights", last):
        yield


@contextmanager
def not_fitted() -> Iterator[None]:
    """Half of the probability to the learned model, the other half equally to all sources."""

    def equal(shares: torch.Tensor) -> torch.Tensor:
        sources = shares.shape[1] - 1
        return torch.tensor([0.5] + [0.5 / sources] * sources, device=shares.device)

    with ExitStack() as stack:
        stack.enter_context(mixture_alone())
        stack.enter_context(patch.object(blend, "fit_mixture", equal))
        yield


def variants(timed: bool) -> dict[str, Callable[[], Any]]:
    """The variants by name, each as a context to fit and score in."""
    trends = [f"trend of {half_life:g} days" for half_life in HALF_LIVES] if timed else []
    pairs = {"follower, followers": ("follower", "followers"), "recency, frequency": ("recency", "frequency")}
    pairs |= {"all trends": tuple(trends)} if timed else {}
    dropped = {name: (name,) for name in (*HISTORY_SOURCES, *trends)} | pairs
    return {
        WHOLE: lambda: without(),
        **{f"without {name}": (lambda some=some: without(*some)) for name, some in dropped.items()},
        "without the mixture": without_mixture,
        "mixture alone": mixture_alone,
        "one scale": one_scale,
        "sources not fitted": not_fitted,
    }


def unfitted(model: LightGC2NPlus) -> LightGC2NPlus:
    """A copy whose blend is to be fitted again."""
    model = copy.deepcopy(model)
    model.blend = blend.Blend(model.blend.neighbours, model.trends.half_lives).to(model.bias.device)
    return model


def refit(run: Path, out: Path, device: str, cross_fit: bool) -> None:
    """Rank the test targets, and with `cross_fit` the validation queries, by every variant."""
    _, split = open_data(plan_of(run))
    _, loaded, _ = load_run(run)
    assert isinstance(loaded, LightGC2NPlus)
    columns: dict[str, np.ndarray] = {"owner": split.test.owner, "validation owner": split.validation.owner}
    alone = copy.deepcopy(loaded.to(device))
    alone.blend = blend.NoBlend()
    if cross_fit:
        columns |= ranked_columns("validation", ALONE, ranked(alone, split, split.validation, device))
    columns |= ranked_columns("test", ALONE, test_ranks(alone, split, device))
    for name, context in variants(loaded.trends.half_lives > 0).items():
        with context():
            model = unfitted(loaded.to(device))
            if cross_fit:
                columns |= ranked_columns("validation", name, cross_fitted(model, split, device))
            finish(model, split, device)
            columns |= ranked_columns("test", name, test_ranks(model, split, device))
        np.savez_compressed(out / f"{run.name}.npz", **columns)  # what is done stays if time runs out
    print(run.name, f"{100 * columns[f'test MRR@20 {WHOLE}'].mean():.3f}", flush=True)


def ranked_columns(part: str, name: str, ranks: np.ndarray) -> dict[str, np.ndarray]:
    return {
        f"{part} MRR@20 {name}": reciprocal_rank(ranks, 20).astype(np.float32),
        f"{part} RC@20 {name}": hit(ranks, 20).astype(bool),
    }


def test_ranks(model: LightGC2NPlus, split: Split, device: str) -> np.ndarray:
    learned = ready_for_test(model, split)
    return ranks_in_domains("test", model, split.test, split.catalogues, learned=learned, device=device)


def ranked(model: LightGC2NPlus, split: Split, queries: Queries, device: str) -> np.ndarray:
    learned = split.train.popularity > 0
    return ranks_in_domains("validation", model, queries, split.catalogues, learned=learned, device=device)


def cross_fitted(model: LightGC2NPlus, split: Split, device: str) -> np.ndarray:
    """The ranks of validation queries, each by a blend fitted to the accounts of the other half."""
    ranks, half = np.zeros(len(split.validation)), split.validation.owner % 2
    for part in (0, 1):
        one = unfitted(model)
        fitted_to = split.validation.select(np.flatnonzero(half != part))
        origin = Origin(None, partial(batches_in_domains, fitted_to, split.catalogues, device))
        one.finish(partial(iter, [origin]))
        ranks[half == part] = ranked(one, split, split.validation.select(np.flatnonzero(half == part)), device)
    return ranks


def table(folder: Path) -> None:
    """Print the difference of each variant to the whole blend, runs of several seeds pooled."""
    seeds = defaultdict(list)
    for file in sorted(folder.glob("*.npz")):
        seeds[re.sub(r"-seed\d+$", "", file.stem)].append(dict(np.load(file)))
    for name, runs in seeds.items():
        for part, owner in (("validation", "validation owner"), ("test", "owner")):
            names = [key.removeprefix(f"{part} MRR@20 ") for key in runs[0] if key.startswith(f"{part} MRR@20 ")]
            if not names:
                continue
            columns = {one: np.mean([run[f"{part} MRR@20 {one}"] for run in runs], axis=0) for one in names}
            hits = {one: np.mean([run[f"{part} RC@20 {one}"] for run in runs]) for one in names}
            pairs = paired_against(WHOLE, columns, runs[0][owner])
            print(
                f"\n{name}, {part}, {len(runs)} runs\n\n| variant | MRR@20 | RC@20 | difference, p |\n|---|---|---|---|"
            )
            for one in names:
                value, p = pairs[one]
                print(
                    f"| {one} | {100 * columns[one].mean():.2f} | {100 * hits[one]:.2f} | {100 * value:+.3f}, {p:.4f} |"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("refit", "table"))
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cross-fit", action="store_true")
    given = parser.parse_args()
    if given.what == "table":
        table(given.folders[0])
        return
    given.out.mkdir(parents=True, exist_ok=True)
    for run in given.folders:
        refit(run, given.out, given.device, given.cross_fit)


if __name__ == "__main__":
    main()
