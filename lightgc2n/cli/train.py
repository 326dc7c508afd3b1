"""`lightgc2n train`: one model, in a folder of its own."""

from pathlib import Path
from typing import Annotated

import typer

from lightgc2n.cli.options import ConfigFile, DatasetFolder, Json, Overrides, Seed
from lightgc2n.cli.printing import print_json
from lightgc2n.progress import say


def train(
    folder: DatasetFolder,
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run's folder; a run that is there goes on.")],
    model: Annotated[str, typer.Option(help="A model of the zoo.")] = "lightgc2n",
    protocol: Annotated[str, typer.Option(help="last, time, cold-accounts or windows.")] = "last",
    domain: Annotated[str, typer.Option(help="Use the events of this domain alone.")] = "",
    targets: Annotated[str, typer.Option(help="Training targets: all, last, or auto (all on logs).")] = "auto",
    target_in_input: Annotated[
        bool, typer.Option("--target-in-input", help="Show the answer, as the released code does.")
    ] = False,
    epochs: Annotated[int | None, typer.Option(help="Most epochs; the same as --set training.epochs=N.")] = None,
    config: ConfigFile = None,
    set: Overrides = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    json: Json = False,
) -> None:
    """Train a model; the same command goes on where a stopped run ended.

    Settings stand in the tables of the model, `split` and `training`: --set training.learning_rate=0.01.
    """
    from dataclasses import asdict

    from lightgc2n import zoo
    from lightgc2n.cli.inputs import read_tables, warn_of_leaks
    from lightgc2n.config import read_settings
    from lightgc2n.data.splits import SplitConfig
    from lightgc2n.devices import choose_device
    from lightgc2n.errors import SettingError
    from lightgc2n.experiments.single import open_data, train_run
    from lightgc2n.training.loop import TrainingConfig
    from lightgc2n.training.runs import RunPlan

    if zoo.entry_of(model).is_floor:
        raise SettingError(f"{model} is a floor: it needs no training. Use lightgc2n compare.")
    tables = read_tables(config, set, known=[model, "split", "training"])
    training = {"seed": seed, **({"epochs": epochs} if epochs is not None else {}), **tables["training"]}
    split = {
        "protocol": protocol,
        "targets": targets,
        "target_in_input": target_in_input,
        "seed": seed,
        **tables["split"],
    }
    plan = RunPlan(
        data=folder,
        model=model,
        domain=domain,
        settings=tables[model],
        split=read_settings(SplitConfig, split, where="split"),
        training=read_settings(TrainingConfig, training, where="training"),
    )
    warn_of_leaks(*open_data(plan))
    chosen = choose_device(device)
    most = plan.training.epochs
    say(f"training {model} on {chosen}, at most {most} epochs; Ctrl-C stops it, the same command goes on")
    progress = train_run(plan, out, chosen)
    if json:
        print_json({"out": str(out), **asdict(progress)})
        return
    value = 100 * progress.best_value
    typer.echo(f"best validation MRR@20 {value:.2f} % after epoch {progress.best_epoch}; ended by {progress.ended_by}")
    typer.echo(f"written to {out}; test it with: lightgc2n evaluate {out}")
