"""The settings file of a model as a search writes it; --config reads it back."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightgc2n import zoo
from lightgc2n.config import toml_value
from lightgc2n.data.splits import SplitConfig
from lightgc2n.experiments.tuning import BEST_SETTINGS, Tuned, TuningPlan
from lightgc2n.files.atomic_writes import new_file, refuse_existing


def write_tuned(tuned: Tuned, path: Path, force: bool = False) -> None:
    """Write the best settings of a search, with their scores and the command that reproduces the search."""
    with new_file(path, force) as temporary:
        temporary.write_text("\n".join(_lines(tuned)) + "\n", encoding="utf-8")


def refuse_other_settings(path: Path, out: Path, force: bool) -> None:
    """Raise an error if --save would replace a file that this search did not write."""
    best = out / BEST_SETTINGS
    if not (path.is_file() and best.is_file() and path.read_bytes() == best.read_bytes()):
        refuse_existing(path, force, "--save")


def _lines(tuned: Tuned) -> Iterator[str]:
    plan, best, defaults = tuned.plan, tuned.best, tuned.defaults
    yield f"# {command_of(plan)}"
    yield f"# data {tuned.dataset.name}, checksum {tuned.dataset.checksum[:12]}, protocol {plan.run.split.protocol}"
    yield f"# {plan.trials} trials of at most {plan.run.training.epochs} epochs; validation MRR@20:"
    yield f"#   chosen, trial {best['trial']}: {_score(best)}"
    yield f"#   {'first settings' if plan.first_file else 'defaults'}, trial 0: {_score(defaults)}"
    fixed = {name: _value_of(plan, name) for name in sorted(plan.fixed)}
    chosen = {**plan.first, **fixed, **best["settings"]}
    for table in (plan.run.model, "training"):
        yield f"\n[{table}]"
        own = {name.rsplit(".", 1)[1]: value for name, value in chosen.items() if name.rsplit(".", 1)[0] == table}
        yield from (f"{name} = {toml_value(value)}" for name, value in own.items())


def _score(row: dict[str, Any]) -> str:
    return f"{100 * row['validation']:.2f} % after {row['epochs']} epochs, ended by {row['ended_by']}"


def command_of(plan: TuningPlan) -> str:
    """The command that runs the same search."""
    run, words = plan.run, [f"lightgc2n tune {plan.run.data} --model {plan.run.model} --trials {plan.trials}"]
    words += [f"--epochs {run.training.epochs}", f"--protocol {run.split.protocol}", f"--seed {run.training.seed}"]
    words += [f"--domain {run.domain}"] if run.domain else []
    words += [f"--sampler {plan.sampler}"] if plan.sampler != "random" else []
    words += [] if plan.halving else ["--no-halving"]
    words += [f"--first {plan.first_file}"] if plan.first_file else []
    words += [f"--set split.{name}={toml_value(value)}" for name, value in _changed(run.split).items()]
    fixed = sorted(plan.fixed - {"training.epochs", "training.seed"})
    return " ".join([*words, *(f"--set {name}={toml_value(_value_of(plan, name))}" for name in fixed)])


def _changed(split: SplitConfig) -> dict[str, Any]:
    """Return the settings of a split that differ from its defaults, except protocol and seed, which are options."""
    defaults = asdict(SplitConfig(protocol=split.protocol, seed=split.seed))
    return {name: value for name, value in asdict(split).items() if value != defaults[name]}


def _value_of(plan: TuningPlan, path: str) -> Any:
    table, name = path.rsplit(".", 1)
    settings = plan.run.training if table == "training" else zoo.model_config(plan.run.model, plan.run.settings)
    return getattr(settings, name)
