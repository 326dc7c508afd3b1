"""`table1` (RQ2): all models on each dataset; and `ablation` (RQ3): LightGC²N and its six variants."""

from collections.abc import Iterator, Mapping, Sequence

from lightgc2n import zoo
from lightgc2n.models.plus_variants import PLUS_VARIANTS
from lightgc2n.models.variants import VARIANTS
from lightgc2n.reporting.arithmetic import Scores, impossible
from lightgc2n.reporting.document import Cell, Figure, Section, Series, Table
from lightgc2n.reporting.published import IN_THE_ZOO, OURS, table1, table2
from lightgc2n.reporting.subject import is_model, is_ours
from lightgc2n.studies.found import DECISIVE, METRICS, TWO_DOMAINS, Found, Group
from lightgc2n.studies.setup import Entry, Setup, Source
from lightgc2n.studies.tables import (
    COSTS,
    PROTOCOLS,
    cost_cells,
    file_name,
    metric_cells,
    metric_notes,
    one_figure,
    paper_cells,
    row_of,
    table,
)

SHARED_ACCOUNT = ("pi-net", "psjnet-2", "da-gcn", "tida-gcn")
SAME_AS_ANOTHER = ("psjnet-1",)  # is pi-net
KINDS = {
    "traditional": ("gmf", "gmf-ce", "mlp", "neumf", "lightgcn"),
    "sequential": ("nais", "gru4rec", "hrnn", "sasrec", "sasrec-gbce", "comirec", "tgsrec"),
    "shared accounts": (*SHARED_ACCOUNT, "disenreason-style", "lightgc2n"),
    "ours": ("lightgc2n-plus",),
}
ABLATION = (*VARIANTS, "lightgc2n-plus")
IN_A_HURRY = ("recency", "markov", "account-markov", "sasrec", "pi-net", "lightgc2n", "lightgc2n-plus")
# The sets of windows that the paper's tables are of; of hvideo-v-pair it has another edition.
PAPER_SETS = {
    "hvideo_e": "HV-E",
    "hvideo_v": "HV-V",
    "hamazon_m": "HA-M",
    "hamazon_b": "HA-B",
    "hvideo-v-pair": "HV-V",
}
PUBLISHED = ("windows", "target-in-input")
# Kinds of bars, with the place of each one's colour: that of LightGC²N and that of ours are theirs in every plot.
DRAWN = {"LightGC²N": 0, "ours": 5, "without a part": 3, "other models": 1, "floors, which only count": 2}
NEEDS_TIMES = "trending"  # without them it is popularity


def models_of_table1() -> list[str]:
    """Floors, then all trained models kind by kind; an ablation is no competitor."""
    trained = [name for names in KINDS.values() for name in names]
    floors = [name for name, entry in zoo.ZOO.items() if entry.is_floor]
    elsewhere = {*trained, *floors, *VARIANTS, *PLUS_VARIANTS, *SAME_AS_ANOTHER}
    others = [name for name in zoo.ZOO if name not in elsewhere]
    return [*floors, *trained, *others]


def runs_of_table1(setup: Setup) -> Iterator[Entry]:
    """Every model on each dataset or domain; those made for two domains also on both at once, as in appendix A3."""
    models = setup.chosen(models_of_table1())
    for source, domain in setup.views():
        hurry = setup.quick and source.kind == "windows"
        wanted = [model for model in models if fits(model, source, setup)]
        yield from (Entry(source, model, domain) for model in wanted if not hurry or model in IN_A_HURRY)
    for source in setup.sources:
        if source.two_domains and (source.kind == "logs" or source.targets_apart):
            both = [model for model in models if model in SHARED_ACCOUNT]
            yield from (Entry(source, model, split={"ask": "each-domain"}) for model in both)


def fits(model: str, source: Source, setup: Setup) -> bool:
    """Whether a model says something of its own on this data, or was asked for by name."""
    return source.timed or model != NEEDS_TIMES or NEEDS_TIMES in setup.models


def runs_of_ablation(setup: Setup) -> Iterator[Entry]:
    """LightGC²N and its variants with the same settings, LightGC²N-plus beside."""
    for source, domain in setup.views():
        yield from (Entry(source, model, domain) for model in setup.chosen(ABLATION))


def section_of_table1(found: Found) -> Section:
    tables = found.tables()
    text = [
        "All models side by side, each asked for the same events of the same accounts among all items. "
        "Floors learn nothing: they count. A model that cannot beat them has no reason to be trained.",
        *(_story(name, protocol, groups) for (name, protocol), groups in tables.items()),
    ]
    made = tuple(_table1(found, *which, groups) for which, groups in tables.items())
    return Section(
        "table1", "Overall performance (RQ2, Table 1)", tuple(text), made, _pictures("table1", found, tables)
    )


def section_of_ablation(found: Found) -> Section:
    tables = found.tables()
    text = [
        "LightGC²N against the same model with one part taken out or put in another's place, with the same settings. "
        "A part earns its place where the model is better with it than without, beyond the interval.",
        *(_story(name, protocol, groups) for (name, protocol), groups in tables.items()),
    ]
    made = tuple(_ablation(found, *which, groups) for which, groups in tables.items())
    figures = _pictures("ablation", found, tables)
    return Section("ablation", "Ablation study (RQ3, Table 2)", tuple(text), made, figures)


def paper_set(dataset: str, protocol: str) -> str:
    """The paper's name of a dataset, where its tables are of that set and that protocol."""
    return PAPER_SETS.get(dataset.lower(), "") if protocol in PUBLISHED else ""


def _table1(found: Found, dataset: str, protocol: str, groups: Sequence[Group]) -> Table:
    of_zoo = {ours: theirs for theirs, names in IN_THE_ZOO.items() for ours in names}
    everything = {which[1]: scores for which, scores in table1().items() if which[0] == paper_set(dataset, protocol)}
    beside = {g.label: everything[of_zoo[g.model]] for g in groups if of_zoo.get(g.model) in everything}
    kinds = {model: kind for kind, names in KINDS.items() for model in names}
    rows = [
        [row_of(group.label), Cell("floor" if zoo.ZOO[group.model].is_floor else kinds.get(group.model, "other"))]
        for group in groups
    ]
    notes = [*(notes_on_data(dataset) if beside else ()), *_notes_on_domains(groups, protocol)]
    return _with_metrics(found, "table1", dataset, protocol, groups, ("model", "kind"), rows, beside, notes)


def _ablation(found: Found, dataset: str, protocol: str, groups: Sequence[Group]) -> Table:
    names = {"lightgc2n": OURS} | {f"lightgc2n-wo-{part.lower()}": part for part in ("LA", "DR", "C", "CL", "S", "A")}
    everything = {which[1]: scores for which, scores in table2().items() if which[0] == paper_set(dataset, protocol)}
    beside = {g.label: everything[names[g.model]] for g in groups if names.get(g.model) in everything}
    rows = [[row_of(group.label)] for group in groups]
    notes = list(notes_on_data(dataset) if beside else ())
    return _with_metrics(found, "ablation", dataset, protocol, groups, ("model",), rows, beside, notes)


def _with_metrics(
    found: Found, name: str, dataset: str, protocol: str, groups: Sequence[Group], heads: Sequence[str],
    rows: Sequence[list[Cell]], beside: Mapping[str, Scores], notes: Sequence[str],
) -> Table:  # fmt: skip
    """Metrics and p, the paper's numbers where there are some, and what each row cost."""
    metrics, broken = metric_cells(groups), impossible(beside)
    theirs = [f"paper {metric}" for metric in METRICS] if beside else []
    cells = [
        [
            *row,
            *metrics[group.label],
            *(paper_cells(beside.get(group.label), broken.get(group.label, ())) if beside else []),
            *cost_cells(group),
        ]
        for group, row in zip(groups, rows, strict=True)
    ]
    more = (
        [f"{len(broken)} of {len(beside)} rows of the paper contradict themselves, and are marked."] if broken else []
    )
    return table(
        found,
        file_name(name, dataset, protocol),
        f"{dataset}, {PROTOCOLS[protocol]}, in %",
        [*heads, *METRICS, "p", *theirs, *COSTS],
        cells,
        groups,
        [*notes, *metric_notes(groups), *more],
    )


def notes_on_data(dataset: str) -> Iterator[str]:
    """What part of the paper's data a dataset is that its numbers stand beside."""
    if dataset.lower() == "hvideo-v-pair":
        yield "Another edition of the paper's HV-V, with other accounts and items, so numbers differ from the paper's."
    else:
        yield "Only a fifth of the paper's data, its test windows, is released; divided anew, it gives other numbers."


def _notes_on_domains(groups: Sequence[Group], protocol: str) -> Iterator[str]:
    if any(group.label.endswith(TWO_DOMAINS) for group in groups):
        yield "Two domains: trained on both at once and asked for the next item of this one, as in appendix A3."
    elif protocol in PUBLISHED and any(group.model in SHARED_ACCOUNT for group in groups):
        yield "Models made for two domains run on this one alone: these windows have no second domain beside them."


def _story(dataset: str, protocol: str, groups: Sequence[Group]) -> str:
    """One sentence: who is best, and where LightGC²N stands."""
    order = sorted(groups, key=lambda group: -group.metric(DECISIVE))
    best = f"{order[0].label} is best with {DECISIVE} {_told(order[0])}"
    own = next((place for place, group in enumerate(order, start=1) if group.label == "lightgc2n"), 0)
    place = f"; lightgc2n is number {own} of {len(order)} with {_told(order[own - 1])}" if own > 1 else ""
    return f"{dataset}, {PROTOCOLS[protocol]}: {best}{place}."


def _told(group: Group) -> str:
    low, high = group.intervals[DECISIVE]
    return f"{100 * group.metric(DECISIVE):.2f} % ({100 * low:.2f} to {100 * high:.2f})"


def _pictures(name: str, found: Found, tables: Mapping[tuple[str, str], Sequence[Group]]) -> tuple[Figure, ...]:
    panels = [_picture(name, found, *which, groups) for which, groups in tables.items()]
    return one_figure(name, f"{DECISIVE} of each model with its 95 % interval", panels)


def _picture(name: str, found: Found, dataset: str, protocol: str, groups: Sequence[Group]) -> Figure:
    members: dict[str, list[Group]] = {kind: [] for kind in DRAWN}
    for group in groups:
        members[_drawn_as(group)].append(group)
    series = tuple(_bars_of(kind, members[kind], style) for kind, style in DRAWN.items() if members[kind])
    title = f"{dataset}, {PROTOCOLS[protocol]}"
    place = file_name(name, dataset, protocol)
    return Figure(place, title, "bars", "", f"{DECISIVE} in %", series, found.command(groups))


def _drawn_as(group: Group) -> str:
    """The kind whose colour a bar has."""
    model, ours, parts, others, floors = DRAWN
    if zoo.ZOO[group.model].is_floor:
        return floors
    if is_ours(group.model):
        return ours
    return model if is_model(group.model) else parts if group.model in VARIANTS else others


def _bars_of(kind: str, groups: Sequence[Group], style: int) -> Series:
    groups = sorted(groups, key=lambda group: -group.metric(DECISIVE))
    low, high = zip(*(group.intervals[DECISIVE] for group in groups), strict=True)
    return Series(
        kind,
        tuple(row_of(group.label).text for group in groups),
        tuple(100 * group.metric(DECISIVE) for group in groups),
        tuple(100 * bound for bound in low),
        tuple(100 * bound for bound in high),
        style,
    )
