"""The commands, in the order in which they are usually run. Each parses its options, calls one function and prints."""

from collections.abc import Callable
from typing import Any

from lightgc2n.cli.audit import audit
from lightgc2n.cli.compare import compare
from lightgc2n.cli.describe import describe
from lightgc2n.cli.doctor import doctor
from lightgc2n.cli.evaluate import evaluate
from lightgc2n.cli.experiment import experiment, report
from lightgc2n.cli.export import export
from lightgc2n.cli.forget import forget
from lightgc2n.cli.generate import generate
from lightgc2n.cli.identify import identify
from lightgc2n.cli.import_ import import_log
from lightgc2n.cli.models import models
from lightgc2n.cli.people import people
from lightgc2n.cli.pipeline import pipeline
from lightgc2n.cli.recommend import recommend
from lightgc2n.cli.refresh import refresh
from lightgc2n.cli.serve import serve
from lightgc2n.cli.simulate import simulate
from lightgc2n.cli.store import store
from lightgc2n.cli.train import train
from lightgc2n.cli.tune import tune

COMMANDS: dict[str, Callable[..., Any]] = {
    "generate": generate,
    "import": import_log,
    "simulate": simulate,
    "describe": describe,
    "audit": audit,
    "models": models,
    "train": train,
    "tune": tune,
    "evaluate": evaluate,
    "compare": compare,
    "experiment": experiment,
    "report": report,
    "recommend": recommend,
    "people": people,
    "identify": identify,
    "refresh": refresh,
    "export": export,
    "serve": serve,
    "store": store,
    "pipeline": pipeline,
    "forget": forget,
    "doctor": doctor,
}

# The groups of `lightgc2n --help`, and the commands of each in their usual order.
GROUPS = {
    "Data": ("generate", "import", "simulate", "describe", "audit"),
    "Models": ("models", "compare", "train", "tune", "evaluate", "recommend"),
    "People": ("people", "identify"),
    "Deployment": ("refresh", "export", "serve", "store", "pipeline", "forget"),
    "Research": ("experiment", "report"),
    "Installation": ("doctor",),
}
