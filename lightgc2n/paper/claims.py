"""The claims of the paper's sections on RQ1 to RQ4 and of its appendix, paraphrased, each judged twice.

`theirs` judges by the numbers that the paper prints, `ours` by our runs; without runs there is no verdict. Accuracy is
judged by MRR@20 under honest protocols. If there are none, the published protocol is used, and the verdict says so.
Rankings are judged at width 16 for all models, as in the paper (`table1-16`), costs by times of steps at that width;
where these were not measured, by Table 1 and by the experiments on efficiency. Parts are judged with the paper's three
latent users, since one user leaves nobody to route between. A run that its budget ended judges nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lightgc2n.experiments.results import ResultGroup
from lightgc2n.paper import cost_claims, edge, published, setting_claims
from lightgc2n.paper.document import Verdict
from lightgc2n.paper.edge import Bundle
from lightgc2n.paper.findings import NO_RUNS, Comparison, Finding, comparisons, measured, only_drawn, printed
from lightgc2n.paper.step_times import StepTimes, of_growing_data, of_layers, of_published_depth, once_each, timed

Comparisons = Mapping[str, Sequence[Comparison]]  # by experiment
MODEL = [("lightgc2n",)]
MOSTLY = 0.75  # the share of comparisons that "typically" requires
VARIANTS = {name: f"lightgc2n-wo-{name.lower()}" for name in published.VARIANTS}
MENTIONED = frozenset({*VARIANTS.values(), *(name for names in published.IN_THE_ZOO.values() for name in names)})
ONE_PERSON = 0.5  # the least ARI at which a latent user counts as a person
LATENT_USERS = 3  # of the model as published
STEPS = "steps"  # models took turns on each share of the data, but not the shares: these judge no growth with the data


@dataclass(frozen=True)
class Agreement:
    """The agreement (ARI) of a model's latent users with the people who are known to share accounts."""

    dataset: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, its place, and how to judge it."""

    text: str
    place: str
    theirs: Callable[[], Finding]
    ours: Callable[[Comparisons, Sequence[Agreement]], Finding]


def judge(
    results: Mapping[str, Sequence[ResultGroup]],
    people: Sequence[Agreement] = (),
    steps: Sequence[StepTimes] = (),
    bundles: Sequence[Bundle] = (),
) -> tuple[Verdict, ...]:
    """A verdict for each claim.

    Args:
        results: the results of each experiment.
        people: the agreement of latent users with known people.
        steps: times of training steps at width 16.
        bundles: measured bundles of trained runs.
    """
    compared = {name: comparisons(groups, MENTIONED) for name, groups in results.items()}
    compared |= {STEPS: timed(steps)} if steps else {}
    verdicts = []
    for claim in CLAIMS:
        theirs = claim.theirs()
        ours = edge.judged(bundles) if claim.text == ON_THE_EDGE else claim.ours(compared, people)
        verdicts.append(Verdict(claim.text, claim.place, theirs.holding, theirs.why, ours.holding, ours.why))
    return tuple(verdicts)


def _zoo(names: Sequence[str]) -> list[tuple[str, ...]]:
    return [published.IN_THE_ZOO[name] for name in names]


def _ranking(text: str, winners: Sequence[str], losers: Sequence[str], share: float = 1.0) -> Claim:
    return Claim(
        text,
        "RQ2, Table 1",
        lambda: printed(published.table1(), winners, losers, share),
        lambda results, people: _ranked(results, _zoo(winners), _zoo(losers), share),
    )


def _ranked(
    results: Comparisons, winners: Sequence[Sequence[str]], losers: Sequence[Sequence[str]], share: float
) -> Finding:
    """Judge at the paper's width; say what each model's own settings give."""
    own = measured(results.get("table1", ()), winners, losers, share)
    equal = measured(results.get("table1-16", ()), winners, losers, share)
    if equal is NO_RUNS or own is NO_RUNS:
        return own if equal is NO_RUNS else equal
    return Finding(equal.holding, f"{equal.why} With each model's own settings (Table 1): {own.holding}. {own.why}")


def _part(text: str, variant: str) -> Claim:
    return Claim(
        text,
        "RQ3, Table 2",
        lambda: printed(published.table2(), [published.OURS], [variant]),
        lambda results, people: _of_part(results.get("ablation", ()), VARIANTS[variant]),
    )


def _of_part(every: Sequence[Comparison], variant: str) -> Finding:
    """Judge with the paper's number of latent users; say what the others give."""
    findings = {
        users: measured([one.with_users(users) for one in every], MODEL, [(variant,)])
        for users in sorted(_numbers_of_users(every), key=lambda users: users != LATENT_USERS)
    }
    texts = [f"With α = {users}: {one.holding}. {one.why}" for users, one in findings.items() if one is not NO_RUNS]
    first = next((one for one in findings.values() if one is not NO_RUNS), NO_RUNS)
    return Finding(first.holding, " ".join(texts) or first.why)


def _numbers_of_users(every: Sequence[Comparison]) -> set[int]:
    """The numbers of latent users of the model in these runs; the paper's if they do not say."""
    runs = [one.runs[run][0] for one in every for run in one.of_models(["lightgc2n"])]
    return {int(run.settings.get("latent_users", LATENT_USERS)) for run in runs} or {LATENT_USERS}


def _drawn(text: str, place: str, ours: Callable[[Sequence[Comparison]], Finding], experiment: str) -> Claim:
    figure = place.partition(", ")[2]
    return Claim(text, place, lambda: only_drawn(figure), lambda results, people: ours(results.get(experiment, ())))


def _costs(
    results: Comparisons,
    experiment: str,
    ours: Callable[[Sequence[Comparison]], Finding],
    which: Callable[[Sequence[Comparison]], Sequence[Comparison]] = of_published_depth,
) -> Finding:
    """Judge by the times of steps at equal width; without them by an experiment."""
    steps = results.get(STEPS, ())
    return ours(which(steps)) if steps else ours(results.get(experiment, ()))


def _cost(
    text: str,
    place: str,
    experiment: str,
    ours: Callable[[Sequence[Comparison]], Finding],
    which: Callable[[Sequence[Comparison]], Sequence[Comparison]] = of_published_depth,
) -> Claim:
    figure = place.partition(", ")[2]
    return Claim(
        text, place, lambda: only_drawn(figure), lambda results, people: _costs(results, experiment, ours, which)
    )


def _one_person_each(results: Comparisons, people: Sequence[Agreement]) -> Finding:
    """Whether latent users are the people who are known to share the accounts."""
    if not people:
        return Finding("cannot be told", "Real logs do not say who watched, and no run on accounts with known people.")
    texts = [f"{one.dataset} {one.value:.2f} (95 %: {one.low:.2f} to {one.high:.2f})" for one in people]
    why = f"Agreement with the people (ARI; 1 identical, 0 chance): {', '.join(texts)}; {ONE_PERSON} is required."
    if all(one.low >= ONE_PERSON for one in people):
        return Finding("holds", why)
    return Finding("does not hold" if any(one.high < ONE_PERSON for one in people) else "cannot be told", why)


ON_THE_EDGE = "It is light enough for edge devices."
CLAIMS = (
    _ranking("LightGC²N is the most accurate of all ten models, on every dataset.", ["LightGC2N"], published.BASELINES),
    _ranking("It is more accurate than the other shared-account models.", ["LightGC2N"], published.SHARED),
    _ranking("It is more accurate than the other graph-based ones.", ["LightGC2N"], published.GRAPH_SHARED),
    _ranking(
        "Shared-account models are typically, in three of four comparisons, more accurate than all others.",
        [*published.SHARED, "LightGC2N"],
        [*published.TRADITIONAL, *published.SEQUENTIAL],
        MOSTLY,
    ),
    _ranking("Sequential models are more accurate than traditional ones.", published.SEQUENTIAL, published.TRADITIONAL),
    _cost(
        "LightGC²N trains faster than the other shared-account models, at every share of the data.",
        "RQ1, Figure 3 a, b",
        "efficiency",
        lambda results: cost_claims.faster(results, _zoo(published.SHARED)),
    ),
    _cost(
        "It needs fewer parameters than the other shared-account models.",
        "RQ1, Figure 3 c, d",
        "efficiency",
        lambda results: cost_claims.fewer_parameters(results, _zoo(published.SHARED)),
        once_each,
    ),
    Claim(
        ON_THE_EDGE,
        "Introduction; conclusion",
        lambda: Finding("cannot be told", "Argued by parameters and time; nothing was run on a device."),
        lambda results, people: NO_RUNS,
    ),
    Claim(
        "Its cost grows linearly with the data.",
        "Method; RQ1",
        lambda: Finding("cannot be told", "Argued by a formula for two of its parts; no time is printed."),
        lambda results, people: _costs(results, "efficiency", cost_claims.linear_time, of_growing_data),
    ),
    _part("The capsule convolution helps: a plain graph convolution in its place is less accurate.", "C"),
    _part("The parts together help: without all of them the model is less accurate.", "A"),
    _part("Linear attention helps: a point-wise convolution in its place is less accurate.", "LA"),
    _part("Dynamic routing helps: without it the model is less accurate.", "DR"),
    _part("Subspace alignment helps: without it the model is less accurate.", "S"),
    _part("The contrastive loss helps: without it the model is less accurate.", "CL"),
    _drawn(
        "The best number of latent users (α) differs from dataset to dataset.",
        "RQ4, Figure 4 a, b",
        lambda results: setting_claims.differs_by_dataset(results, "latent_users"),
        "hyperparameters",
    ),
    _drawn(
        "Temperature (β) and weight (γ) of the contrast are best at 0.8 or 0.9.",
        "RQ4, Figure 4 c, d",
        lambda results: setting_claims.best_lies_in(results, ("temperature", "contrast_weight"), {0.8, 0.9}),
        "hyperparameters",
    ),
    Claim(
        "The contrast pays only where β and γ are well chosen.",
        "RQ4, Figure 4 c, d",
        lambda: only_drawn("Figure 4 c, d"),
        lambda results, people: setting_claims.helps_only_at_some(
            results.get("hyperparameters", ()),
            results.get("ablation", ()),
            ("temperature", "contrast_weight"),
            VARIANTS["CL"],
        ),
    ),
    Claim(
        "Each subspace base stands for one latent user of an account.",
        "A5",
        lambda: Finding("cannot be told", "Argued in words; no test against known people is printed."),
        _one_person_each,
    ),
    _cost(
        "Its training time grows less with the data than that of its variants without capsules, alignment or all.",
        "A6, Figure 5 a, b",
        "ablation-efficiency",
        lambda results: cost_claims.steadier(results, [VARIANTS[name] for name in ("C", "S", "A")]),
        of_growing_data,
    ),
    _cost(
        "Taking out the capsules or the alignment changes the number of parameters little.",
        "A6, Figure 5 c, d",
        "ablation-efficiency",
        lambda results: cost_claims.little_change(results, [VARIANTS[name] for name in ("C", "S")]),
        once_each,
    ),
    _drawn(
        "Two graph layers (L = 2) are best.",
        "A7, Figure 6 a, b",
        lambda results: setting_claims.best_lies_in(results, ("layers",), {2.0}),
        "layers",
    ),
    _drawn(
        "With more than two layers accuracy falls.",
        "A7, Figure 6 a, b",
        lambda results: setting_claims.declines_after(results, "layers", 2.0),
        "layers",
    ),
    _cost(
        "Time and parameters grow with every layer.",
        "A7, Figure 6 c, d",
        "layers",
        cost_claims.grows_with_layers,
        of_layers,
    ),
    _cost(
        "They grow faster and faster with the number of layers.",
        "A7, Figure 6 c, d",
        "layers",
        cost_claims.accelerates_with_layers,
        of_layers,
    ),
)
