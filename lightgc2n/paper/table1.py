"""`table1` (RQ2): all models on each dataset; and `ablation` (RQ3): LightGC²N and its six variants."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace

from lightgc2n import zoo
from lightgc2n.experiments.results import METRICS, ResultGroup
from lightgc2n.experiments.table import Cell, Table
from lightgc2n.metrics.paired_tests import DECISIVE
from lightgc2n.models.lightgc2n.ablations import VARIANTS
from lightgc2n.models.plus.ablations import PLUS_VARIANTS
from lightgc2n.paper.document import Figure, Section, Series, is_model, is_ours
from lightgc2n.paper.experiment_plan import Entry, Setup, Source
from lightgc2n.paper.experiment_results import ExperimentResults
from lightgc2n.paper.findings import WITHOUT_USERS
from lightgc2n.paper.published import IN_THE_ZOO, OURS, Scores, impossible, table1, table2
from lightgc2n.paper.section_tables import (
    COSTS,
    Part,
    cost_cells,
    metric_cells,
    metric_notes,
    one_figure,
    paper_cells,
    parts_of,
    row_title,
    series,
)

SHARED_ACCOUNT = ("pi-net", "psjnet-2", "da-gcn", "tida-gcn")
KINDS = {
    "traditional": ("gmf", "gmf-ce", "mlp", "neumf", "lightgcn"),
    "sequential": ("nais", "gru4rec", "hrnn", "sasrec", "sasrec-gbce", "comirec", "tgsrec"),
    "shared accounts": (*SHARED_ACCOUNT, "disenreason-style", "lightgc2n"),
    "ours": ("lightgc2n-plus",),
}
ABLATION = (*VARIANTS, "lightgc2n-plus")
PAPER_WIDTH = 16  # of all models in the paper
TABLE1, AT_PAPER_WIDTH = "table1", "table1-16"  # experiments with all models
# Latent users in the ablations: the paper's default, and one, which validation chooses on logs. With one latent user
# every affinity is 1, and routing and alignment have nobody to choose between.
ABLATION_USERS = (3, 1)
IN_A_HURRY = ("recency", "markov", "account-markov", "sasrec", "pi-net", "lightgc2n", "lightgc2n-plus")
# Our names of the datasets in the paper's tables; hvideo-v-pair is another edition of HV-V.
PAPER_SETS = {
    "hvideo_e": "HV-E",
    "hvideo_v": "HV-V",
    "hamazon_m": "HA-M",
    "hamazon_b": "HA-B",
    "hvideo-v-pair": "HV-V",
}
PUBLISHED = ("windows", "target-in-input")
# Kinds of bars, with the index of each one's colour: LightGC²N and ours have the same colours in every plot.
DRAWN = {"LightGC²N": 0, "ours": 5, "without a part": 3, "other models": 1, "simple baselines, which only count": 2}
NEEDS_TIMES = "trending"  # without times it is the same as popularity


def models_of_table1() -> list[str]:
    """The simple baselines, then all trained models by kind, without the ablations."""
    trained = [name for names in KINDS.values() for name in names]
    simple = [name for name, entry in zoo.ZOO.items() if entry.is_simple]
    elsewhere = {*trained, *simple, *VARIANTS, *PLUS_VARIANTS}
    others = [name for name in zoo.ZOO if name not in elsewhere]
    return [*simple, *trained, *others]


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


def runs_at_paper_width(setup: Setup) -> Iterator[Entry]:
    """The runs of `table1`, every width of every model 16 as in the paper."""
    for entry in runs_of_table1(setup):
        yield replace(entry, settings={**entry.settings, **at_paper_width(entry.model)})


def at_paper_width(model: str) -> dict[str, int]:
    """Every width of a model as a setting, as wide as the paper's."""
    settings = fields(zoo.ZOO[model].settings)
    return {field.name: PAPER_WIDTH for field in settings if field.name.endswith("width")}


def fits(model: str, source: Source, setup: Setup) -> bool:
    """Whether a model differs from the others on this data, or was named in --models."""
    return source.timed or model != NEEDS_TIMES or NEEDS_TIMES in setup.models


def runs_of_ablation(setup: Setup) -> Iterator[Entry]:
    """LightGC²N and its variants with the same settings, for each number of latent users, and LightGC²N-plus."""
    models = setup.chosen(ABLATION)
    for source, domain in setup.views():
        for users in ABLATION_USERS[:1] if setup.quick else ABLATION_USERS:
            label = "" if users == ABLATION_USERS[0] else f"-alpha-{users}"
            for model in (model for model in models if model in VARIANTS):
                if label and model == WITHOUT_USERS:
                    continue
                yield Entry(source, model, domain, f"{model}{label}" * bool(label), settings={"latent_users": users})
        yield from (Entry(source, model, domain) for model in models if model not in VARIANTS)


def section_of_table1(results: ExperimentResults) -> Section:
    text = (
        "All models on the same test targets of the same accounts, each ranked among all items. Simple baselines "
        "count; some of them fit one or two numbers to validation events. A model that cannot beat them has no reason "
        "to be trained."
    )
    return _section(results, "Overall performance (RQ2, Table 1)", text, _table1)


def section_at_paper_width(results: ExperimentResults) -> Section:
    text = (
        "The same at the width of the paper: every width of every trained model is 16. The notes of each table name "
        "the origin of its settings. This table judges the paper's claims about accuracy; the one before it, where "
        "models have widths of their own, judges none."
    )
    return _section(results, "Overall performance at width 16 (RQ2, Table 1)", text, _table1)


def section_of_ablation(results: ExperimentResults) -> Section:
    text = (
        "LightGC²N against the same model with one part removed or replaced, with the same settings. "
        "A part helps where the model is better with it than without, by more than the interval."
    )
    return _section(results, "Ablation study (RQ3, Table 2)", text, _ablation)


def _section(results: ExperimentResults, title: str, text: str, table_of: Callable[[Part], Table]) -> Section:
    parts = parts_of(results)
    figures = one_figure(results.name, f"{DECISIVE} of each model with its 95 % interval", list(map(_picture, parts)))
    story = (text, *map(_story, parts), *_not_run(results))
    return Section(results.name, title, story, tuple(map(table_of, parts)), figures)


def _not_run(results: ExperimentResults) -> Iterator[str]:
    """Which trained models have no run in Table 1, in a sentence."""
    there = {group.model for group in results.groups}
    trained = [model for models in KINDS.values() for model in models]
    if results.name in (TABLE1, AT_PAPER_WIDTH) and (absent := [model for model in trained if model not in there]):
        yield f"Not run: {', '.join(absent)}. “Best” means the best of those that were run."


def paper_set(dataset: str, protocol: str) -> str:
    """Return the paper's name of a dataset if its tables cover that dataset and protocol, else an empty string."""
    return PAPER_SETS.get(dataset.lower(), "") if protocol in PUBLISHED else ""


def _table1(part: Part) -> Table:
    of_zoo = {ours: theirs for theirs, names in IN_THE_ZOO.items() for ours in names}
    kinds = {model: kind for kind, names in KINDS.items() for model in names}
    kinds |= {name: "simple" for name, entry in zoo.ZOO.items() if entry.is_simple}
    rows = [[Cell(row_title(group)), Cell(kinds.get(group.model, "other"))] for group in part.groups]
    return _with_metrics(part, ("model", "kind"), rows, _beside(part, table1(), of_zoo), _notes_on_domains(part))


def _ablation(part: Part) -> Table:
    names = {"lightgc2n": OURS} | {f"lightgc2n-wo-{name.lower()}": name for name in ("LA", "DR", "C", "CL", "S", "A")}
    rows = [[Cell(row_title(group))] for group in part.groups]
    return _with_metrics(part, ("model",), rows, _beside(part, table2(), names), ())


def _beside(part: Part, published: Mapping[tuple[str, str], Scores], names: Mapping[str, str]) -> dict[str, Scores]:
    """Return the paper's scores of the groups in its table; `names` maps models of the zoo to the paper's names."""
    dataset = paper_set(part.dataset, part.protocol)
    named = {group.title: (dataset, names.get(group.model, "")) for group in part.groups}
    return {title: published[which] for title, which in named.items() if which in published}


def _with_metrics(
    part: Part, heads: Sequence[str], rows: Sequence[list[Cell]], beside: Mapping[str, Scores], notes: Iterable[str]
) -> Table:
    """Return metrics and p, the paper's numbers if there are any, and costs."""
    metrics, broken = metric_cells(part.groups), impossible(beside)
    theirs = [f"paper {metric}" for metric in METRICS] if beside else []
    cells = [
        [
            *row,
            *metrics[group.title],
            *(paper_cells(beside.get(group.title), broken.get(group.title, ())) if beside else []),
            *cost_cells(group),
        ]
        for group, row in zip(part.groups, rows, strict=True)
    ]
    marked = f"{len(broken)} of {len(beside)} rows of the paper contradict themselves, and are marked."
    on_data = notes_on_data(part.dataset) if beside else ()
    every = [*on_data, *notes, *metric_notes(part.groups), *([marked] if broken else [])]
    return part.table([*heads, *METRICS, "p", *theirs, *COSTS], cells, every)


def notes_on_data(dataset: str) -> Iterator[str]:
    """Yield notes on how a dataset differs from the paper's, if the paper's numbers are beside it."""
    if dataset.lower() == "hvideo-v-pair":
        yield "Another edition of the paper's HV-V, with other accounts and items, so numbers differ from the paper's."
    else:
        yield "Only a fifth of the paper's data, its test windows, is released; our split of it gives other numbers."


def _notes_on_domains(part: Part) -> Iterator[str]:
    if any(group.domains > 1 for group in part.groups):
        yield "Two domains: trained on both at once and tested on the next item of this one, as in appendix A3."
    elif part.protocol in PUBLISHED and any(group.model in SHARED_ACCOUNT for group in part.groups):
        yield "Models made for two domains run on this one alone: these windows have no second domain beside them."


def _story(part: Part) -> str:
    """One sentence: the best model, and the rank of LightGC²N."""
    order = sorted(part.groups, key=lambda group: -group.metric(DECISIVE))
    if len(order) == 1:
        return f"{part.title}: {order[0].title} alone was run, with {DECISIVE} {_score(order[0])}."
    best = f"{order[0].title} is best with {DECISIVE} {_score(order[0])}"
    own = next((place for place, group in enumerate(order, start=1) if group.title == "lightgc2n"), 0)
    place = f"; lightgc2n is number {own} of {len(order)} with {_score(order[own - 1])}" if own > 1 else ""
    return f"{part.title}: {best}{place}."


def _score(group: ResultGroup) -> str:
    score = group.estimates[DECISIVE]
    return f"{100 * score.value:.2f} % ({100 * score.low:.2f} to {100 * score.high:.2f})"


def _picture(part: Part) -> Figure:
    members: dict[str, list[ResultGroup]] = {kind: [] for kind in DRAWN}
    for group in part.groups:
        members[_drawn_as(group)].append(group)
    bars = tuple(_bars_of(kind, members[kind], style) for kind, style in DRAWN.items() if members[kind])
    return Figure(part.file(), part.title, "bars", "", f"{DECISIVE} in %", bars, part.command)


def _drawn_as(group: ResultGroup) -> str:
    """Return the kind of a bar, which decides its colour."""
    model, ours, parts, others, simple = DRAWN
    if zoo.ZOO[group.model].is_simple:
        return simple
    if is_ours(group.model):
        return ours
    return model if is_model(group.model) else parts if group.model in VARIANTS else others


def _bars_of(kind: str, groups: Sequence[ResultGroup], style: int) -> Series:
    groups = sorted(groups, key=lambda group: -group.metric(DECISIVE))
    return series(kind, [row_title(group) for group in groups], [group.estimates[DECISIVE] for group in groups], style)
