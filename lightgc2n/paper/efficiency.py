"""`efficiency` (RQ1) and `ablation-efficiency` (A6): training time as the data grows, parameters and memory."""

from collections.abc import Iterable, Iterator, Sequence

from lightgc2n.experiments.results import ResultGroup
from lightgc2n.experiments.table import Cell, Table
from lightgc2n.paper.document import Figure, Section, Series
from lightgc2n.paper.experiment_plan import Entry, Setup
from lightgc2n.paper.experiment_results import ExperimentResults
from lightgc2n.paper.section_tables import Part, count, one_figure, parts_of, row_title, seconds
from lightgc2n.paper.table1 import SHARED_ACCOUNT, at_paper_width

SHARES, FEW_SHARES = (0.2, 0.4, 0.6, 0.8, 1.0), (0.2, 0.6, 1.0)
MODELS = ("lightgc2n", "lightgc2n-plus", *SHARED_ACCOUNT)
VARIANTS = ("lightgc2n", "lightgc2n-wo-c", "lightgc2n-wo-s", "lightgc2n-wo-a", "lightgc2n-plus")
FEW = {MODELS: ("lightgc2n", "lightgc2n-plus", "pi-net", "da-gcn"), VARIANTS: VARIANTS[:1] + VARIANTS[3:]}


def runs_of_efficiency(setup: Setup) -> Iterator[Entry]:
    """LightGC²N and every model for shared accounts; those that serve two domains also with both at once."""
    models = setup.chosen(FEW[MODELS] if setup.quick else MODELS)
    yield from _shares(setup, models)
    for source in setup.sources:
        if source.two_domains and (source.kind == "logs" or source.targets_apart):
            for model in (model for model in models if model in SHARED_ACCOUNT):
                yield from (
                    Entry(source, model, label=_label(model, share), training=_counted(setup),
                          split={"ask": "each-domain", "training_share": share}, settings=at_paper_width(model))
                    for share in _wanted(setup)
                )  # fmt: skip


def runs_of_ablation_efficiency(setup: Setup) -> Iterator[Entry]:
    """LightGC²N and the variants that the paper's appendix times."""
    yield from _shares(setup, setup.chosen(FEW[VARIANTS] if setup.quick else VARIANTS))


def section_of_efficiency(results: ExperimentResults) -> Section:
    text = (
        "How long an epoch takes as the training data grows from a fifth to all of it, how many parameters a model "
        "has, and how much memory training takes. Every run trains the same number of epochs; seconds are those of "
        "the fastest epoch, without validation and tests. Every width is 16, as in the paper.",
        "A model for two domains serves both with its parameters: they are counted in all, and for each domain served.",
    )
    return _section(results, "Training time and parameters (RQ1, Figure 3)", text)


def section_of_ablation_efficiency(results: ExperimentResults) -> Section:
    text = (
        "The same for LightGC²N without its capsules (w/o C), without the alignment (w/o S) and without all parts "
        "(w/o A): the cost of each part.",
    )
    return _section(results, "The cost of each part (appendix A6, Figure 5)", text)


def _shares(setup: Setup, models: Iterable[str]) -> Iterator[Entry]:
    for source, domain in setup.views():
        for model in models:
            for share in _wanted(setup):
                split, training = {"training_share": share}, _counted(setup)
                yield Entry(source, model, domain, _label(model, share), split, training, at_paper_width(model))


def _wanted(setup: Setup) -> tuple[float, ...]:
    return FEW_SHARES if setup.quick else SHARES


def _label(model: str, share: float) -> str:
    return f"{model}-share-{share:.1f}"


def _counted(setup: Setup) -> dict[str, int]:
    # No checkpoint is selected here: one evaluation at the end, and no early stopping.
    epochs = setup.budget or (3 if setup.quick else 6)
    return {"epochs": epochs, "evaluate_every": epochs, "patience": epochs}


def _section(results: ExperimentResults, title: str, text: tuple[str, ...]) -> Section:
    parts = parts_of(results)
    figures = tuple(
        figure
        for part in parts
        for figure in one_figure(part.file(), f"{part.title}: the cost of training", list(_pictures(part)))
    )
    return Section(results.name, title, text, tuple(map(_table, parts)), figures)


def _by_model(groups: Sequence[ResultGroup]) -> dict[str, list[ResultGroup]]:
    """The groups of each model, the smallest share first."""
    order = {group.model: place for place, group in enumerate(groups)}
    models: dict[str, list[ResultGroup]] = {}
    for group in sorted(groups, key=lambda group: (order[group.model], group.domains, group.share)):
        models.setdefault(row_title(group, group.model), []).append(group)
    return models


def _table(part: Part) -> Table:
    shares = sorted({group.share for group in part.groups})
    rows = [[Cell(title), *_costs(groups, shares)] for title, groups in _by_model(part.groups).items()]
    columns = [
        "model",
        "parameters",
        "domains served",
        "parameters a domain",
        *(f"s an epoch at {share:.1f}" for share in shares),
        "growth",
        "peak MB",
    ]
    linear = f"growth: seconds at {shares[-1]:.1f} over seconds at {shares[0]:.1f}; "
    linear += f"{shares[-1] / shares[0]:.1f} is linear, less means that part of the cost does not grow with the data."
    return part.table(columns, rows, [linear], f"{part.title}: seconds an epoch by share of the training sequences")


def _costs(groups: Sequence[ResultGroup], shares: Sequence[float]) -> list[Cell]:
    last = groups[-1]
    took = {group.share: group.seconds_per_epoch for group in groups}
    least, most = took.get(shares[0]), took.get(shares[-1])
    growth = Cell(f"{most / least:.1f}", most / least) if least and most else Cell("-")
    return [
        count(last.parameters),
        count(last.domains),
        count(last.parameters / last.domains),
        *(seconds(took.get(share)) for share in shares),
        growth,
        count(last.mean("peak_memory_mb")),
    ]


def _pictures(part: Part) -> Iterator[Figure]:
    models = _by_model(part.groups)
    lines = tuple(
        Series(title, tuple(g.share for g in groups), tuple(g.seconds_per_epoch or 0.0 for g in groups))
        for title, groups in models.items()
    )
    title, share = f"{part.dataset}: how training time grows with the data", "share of the training data"
    yield Figure(part.file("time"), title, "lines", share, "seconds an epoch", lines, part.command)
    bars = Series("parameters", tuple(models), tuple(g[-1].parameters / g[-1].domains for g in models.values()))
    title = f"{part.dataset}: parameters for each domain served"
    yield Figure(part.file("parameters"), title, "bars", "", "parameters", (bars,), part.command)
