"""`efficiency` (RQ1) and `ablation-efficiency` (A6): training time as the data grows, parameters and memory."""

from collections.abc import Iterable, Iterator, Sequence

from lightgc2n.reporting.document import Cell, Figure, Section, Series, Table
from lightgc2n.studies.found import TWO_DOMAINS, Found, Group
from lightgc2n.studies.setup import Entry, Setup
from lightgc2n.studies.table1 import SHARED_ACCOUNT
from lightgc2n.studies.tables import PROTOCOLS, count, file_name, one_figure, row_of, seconds, table

SHARES, FEW_SHARES = (0.2, 0.4, 0.6, 0.8, 1.0), (0.2, 0.6, 1.0)
MARK = "-share-"  # between the model and the share in the name of a run
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
                          split={"ask": "each-domain", "training_share": share})
                    for share in _wanted(setup)
                )  # fmt: skip


def runs_of_ablation_efficiency(setup: Setup) -> Iterator[Entry]:
    """LightGC²N and the variants that the paper's appendix times."""
    yield from _shares(setup, setup.chosen(FEW[VARIANTS] if setup.quick else VARIANTS))


def section_of_efficiency(found: Found) -> Section:
    text = (
        "How long an epoch of training takes as the training data grows from a fifth to all of it, how many numbers a "
        "model learns, and how much memory that takes. Every run trains the same number of epochs; seconds are those "
        "of the quickest epoch, without validation and tests.",
        "A model for two domains serves both with its parameters: they are counted in all, and for each domain served.",
    )
    return _section(found, "efficiency", "Training time and parameters (RQ1, Figure 3)", text)


def section_of_ablation_efficiency(found: Found) -> Section:
    text = (
        "The same for LightGC²N without its capsules (w/o C), without the alignment (w/o S) and without all parts "
        "(w/o A): what each part costs.",
    )
    return _section(found, "ablation-efficiency", "What the parts cost (appendix A6, Figure 5)", text)


def _shares(setup: Setup, models: Iterable[str]) -> Iterator[Entry]:
    for source, domain in setup.views():
        for model in models:
            for share in _wanted(setup):
                split, training = {"training_share": share}, _counted(setup)
                yield Entry(source, model, domain, _label(model, share), split, training)


def _wanted(setup: Setup) -> tuple[float, ...]:
    return FEW_SHARES if setup.quick else SHARES


def _label(model: str, share: float) -> str:
    return f"{model}{MARK}{share:.1f}"


def _counted(setup: Setup) -> dict[str, int]:
    # Nothing is chosen here: one evaluation at the end, and no patience that would end a run before the others.
    epochs = setup.budget or (3 if setup.quick else 6)
    return {"epochs": epochs, "evaluate_every": epochs, "patience": epochs}


def _section(found: Found, name: str, title: str, text: tuple[str, ...]) -> Section:
    tables = {which: _by_model(groups) for which, groups in found.tables().items()}
    made = tuple(_table(found, name, *which, models) for which, models in tables.items())
    figures = tuple(
        figure
        for (dataset, protocol), models in tables.items()
        for figure in one_figure(
            file_name(name, dataset, protocol),
            f"{dataset}, {PROTOCOLS[protocol]}: what training takes",
            list(_pictures(found, name, dataset, protocol, models)),
        )
    )
    return Section(name, title, text, made, figures)


def _by_model(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each model, the smallest share first."""
    found: dict[str, list[Group]] = {}
    for group in sorted(groups, key=lambda group: group.share):
        ending = TWO_DOMAINS if group.label.endswith(TWO_DOMAINS) else ""
        found.setdefault(group.label.partition(MARK)[0] + ending, []).append(group)
    order = {group.label.partition(MARK)[0]: place for place, group in enumerate(groups)}
    return dict(sorted(found.items(), key=lambda pair: order[pair[0].removesuffix(TWO_DOMAINS)]))


def _table(found: Found, name: str, dataset: str, protocol: str, models: dict[str, list[Group]]) -> Table:
    shares = sorted({group.share for groups in models.values() for group in groups})
    rows = [[row_of(label), *_costs(groups, shares)] for label, groups in models.items()]
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
    linear += f"{shares[-1] / shares[0]:.1f} would be linear, less means that something does not grow with the data."
    everything = [group for groups in models.values() for group in groups]
    caption = f"{dataset}, {PROTOCOLS[protocol]}: seconds an epoch by share of the training sequences"
    return table(found, file_name(name, dataset, protocol), caption, columns, rows, everything, [linear])


def _costs(groups: Sequence[Group], shares: Sequence[float]) -> list[Cell]:
    last = groups[-1]
    took = {group.share: group.seconds_an_epoch for group in groups}
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


def _pictures(found: Found, name: str, dataset: str, protocol: str, models: dict[str, list[Group]]) -> Iterator[Figure]:
    everything = [group for groups in models.values() for group in groups]
    command = found.command(everything)
    lines = tuple(
        Series(row_of(label).text, tuple(g.share for g in groups), tuple(g.seconds_an_epoch or 0.0 for g in groups))
        for label, groups in models.items()
    )
    place = file_name(name, dataset, protocol)
    title = f"{dataset}: how training time grows with the data"
    yield Figure(f"{place}-time", title, "lines", "share of the training data", "seconds an epoch", lines, command)
    names = tuple(row_of(label).text for label in models)
    bars = Series("parameters", names, tuple(g[-1].parameters / g[-1].domains for g in models.values()))
    title = f"{dataset}: parameters for each domain served"
    yield Figure(f"{place}-parameters", title, "bars", "", "parameters", (bars,), command)
