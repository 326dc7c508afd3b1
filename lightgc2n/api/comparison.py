"""Comparison of models on one dataset, and evaluation of one run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightgc2n.api.calls import api_call
from lightgc2n.api.dataset import Dataset, as_dataset
from lightgc2n.api.frames import Columns, Tabular, make_frame

if TYPE_CHECKING:
    from lightgc2n.experiments.table import Table

Settings = Mapping[str, Any]
COSTS = ("parameters", "epochs", "best_epoch", "ended_by", "training_seconds", "seconds")


class Comparison(Tabular):
    """How well models predict the held-out events: metrics with intervals, and paired tests against the best model.

    Example:
        >>> compared = lg.compare(data, models=["popularity", "sasrec"])
        >>> compared.to_frame()  # one row per model; metrics as fractions
        >>> compared.details()  # also by kind of target, with 95 % intervals
        >>> compared.best

    Attributes:
        result: all measurements, as JSON values.
        examples: example accounts, as JSON values: their newest events, the next item, and the list of each model.
    """

    def __init__(
        self, result: dict[str, Any], library: str | None = None, examples: Sequence[dict[str, Any]] = ()
    ) -> None:
        self.result, self.library, self.examples = result, library, list(examples)

    @property
    def models(self) -> list[str]:
        """The names of the models."""
        return list(self.result["models"])

    @property
    def best(self) -> str:
        """The model with the highest MRR at the largest cutoff."""
        return str(next(iter(self.result["models"].values()))["paired"]["against"])

    @property
    def left_out(self) -> dict[str, str]:
        """The reasons why models were omitted, by model name."""
        return dict(self.result.get("left_out", {}))

    def details(self, library: str | None = None) -> Any:
        """Return every metric of every model on every subset of the targets, with its 95 % interval, as a frame."""
        from lightgc2n.experiments.compare import LONG_COLUMNS, long_rows

        columns = zip(*long_rows(self.result), strict=True)
        return make_frame(dict(zip(LONG_COLUMNS, map(list, columns), strict=True)), library, self.library)

    def _columns(self) -> Columns:
        models = self.result["models"].values()
        metrics = [facts["metrics"]["all"] for facts in models]
        names = [name for name in metrics[0] if name != "queries"]
        return {
            "model": self.models,
            **{name: [values[name]["value"] for values in metrics] for name in names},
            "p": [facts["paired"]["p"] for facts in models],
            **{name: [facts["beyond"][name]["value"] for facts in models] for name in self._beyond()},
            **{name: [facts.get(name) for facts in models] for name in COSTS},
        }

    def _beyond(self) -> Sequence[str]:
        """The names of the measures beyond accuracy; none where they were not measured."""
        return list(next(iter(self.result["models"].values())).get("beyond", {}))

    def _headline(self) -> str:
        counts = self.result["counts"]
        return (
            f"{', '.join(self.models)} on {counts['test_queries']:,} test targets of {self.result['dataset']['name']!r}"
        )

    def _tables(self) -> "Sequence[Table]":
        from lightgc2n.experiments.comparison_examples import example_tables
        from lightgc2n.experiments.comparison_tables import comparison_tables

        metrics, *others = comparison_tables(self.result)
        beyond = [table for table in others if table.name == "beyond"]
        return [metrics, *beyond, *example_tables(self.result, self.examples)]

    def _shown_notes(self) -> Sequence[str]:
        from lightgc2n.experiments.comparison_tables import comparison_notes

        return list(comparison_notes(self.result))


class Evaluation(Comparison):
    """The evaluation of one run on its test targets.

    Example:
        >>> tested = run.evaluate()
        >>> tested["MRR@20"], tested.metrics
    """

    def _tables(self) -> "Sequence[Table]":
        from lightgc2n.experiments.comparison_tables import run_tables

        return [next(run_tables(self.result))]

    @property
    def metrics(self) -> dict[str, float]:
        """Each metric of the run, as a fraction."""
        values = self.result["models"][self.models[0]]["metrics"]["all"]
        return {name: value["value"] for name, value in values.items() if name != "queries"}

    def __getitem__(self, metric: str) -> float:
        return self.metrics[metric]


def compare(
    data: Dataset | str | Path,
    models: Sequence[str] | str = "simple",
    *,
    epochs: int | None = None,
    protocol: str = "last",
    domain: str = "",
    cutoffs: Sequence[int] = (5, 10, 20),
    exclude_seen: bool = False,
    metrics: str = "accuracy",
    examples: int = 0,
    settings: Mapping[str, Settings] | None = None,
    split: Settings | None = None,
    training: Settings | None = None,
    seed: int = 0,
    device: str = "cpu",
    out: str | Path | None = None,
    force: bool = False,
    progress: bool = True,
) -> Comparison:
    """Train models on one split of the data and compare them on the same test targets.

    Args:
        data: a dataset, or the path of a log or a prepared dataset.
        models: names of `list_models()`, or `simple` (all simple baselines), or `all`.
        epochs: maximum number of epochs of each trained model.
        protocol: how data is split: last, time, cold-accounts or windows.
        domain: use only the events of this domain.
        cutoffs: list lengths of the metrics.
        exclude_seen: exclude items of the history from the lists.
        metrics: `accuracy`, or `all`: also catalogue coverage, novelty, diversity and popularity bias of the lists.
        examples: number of random test accounts whose lists are shown, with titles where known.
        settings: settings of the models, by model name: `{"sasrec": {"width": 32}}`.
        split: further settings of the split, such as `{"validation": False}`.
        training: further settings of the training, such as `{"learning_rate": 0.01}`.
        seed: seed of all random numbers.
        device: cpu, cuda or auto.
        out: the folder for results, ranks and trained runs; an interrupted comparison resumes.
        force: replace an existing comparison.
        progress: show progress.

    Example:
        >>> lg.compare(data, models=["popularity", "sasrec", "lightgc2n-plus"]).to_frame()
    """
    with api_call(progress):
        from lightgc2n import zoo
        from lightgc2n.devices import choose_device
        from lightgc2n.experiments.run_comparison import run_comparison, wants_beyond_accuracy

        data = as_dataset(data)
        given = models.split(",") if isinstance(models, str) else list(models)
        names = zoo.choose_models(",".join(given))
        for name in settings or {}:
            zoo.entry_of(name)
        limit = {} if epochs is None else {"epochs": epochs}
        tables = {
            name: {name: dict((settings or {}).get(name, {})), "training": limit | dict(training or {})}
            for name in names
        }
        compared = run_comparison(
            data.folder,
            names,
            tables,
            domain=domain,
            split={"protocol": protocol, "seed": seed, **(split or {})},
            cutoffs=sorted(set(cutoffs)),
            optional=[name for name in names if name not in given],
            exclude_seen=exclude_seen,
            device=choose_device(device),
            seed=seed,
            out=Path(out) if out is not None else None,
            force=force,
            beyond_accuracy=wants_beyond_accuracy(metrics),
            examples=examples,
        )
        return Comparison(compared.result, data.library, compared.examples)


def list_models(*, simple: bool | None = None) -> list[str]:
    """Return the names of all models.

    Args:
        simple: only the simple baselines (True), or only the models that are trained (False).
    """
    with api_call():
        from lightgc2n.zoo import ZOO

        return [name for name, entry in ZOO.items() if simple is None or entry.is_simple == simple]
