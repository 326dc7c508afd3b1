"""The claims of the paper's sections on RQ1 to RQ4 and of its appendix, in our words, each judged twice.

`theirs` reads the numbers that the paper prints. `ours` reads our runs, by experiment; what was not run cannot be told.
Accuracy is decided by MRR@20 under honest protocols; where there are none, under the published one, and it says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lightgc2n.reporting import costs, published, values
from lightgc2n.reporting.contests import Contest, contests
from lightgc2n.reporting.document import Verdict
from lightgc2n.reporting.findings import Finding, measured, only_drawn, printed
from lightgc2n.reporting.measured import Agreement, Results

Contests = Mapping[str, Sequence[Contest]]  # by experiment
MODEL = [("lightgc2n",)]
MOSTLY = 0.75  # of the comparisons: what we read "typically" as
VARIANTS = {name: f"lightgc2n-wo-{name.lower()}" for name in published.VARIANTS}
MENTIONED = frozenset({*VARIANTS.values(), *(name for names in published.IN_THE_ZOO.values() for name in names)})
ONE_PERSON = 0.5  # ARI from which a latent user may be said to stand for a person


@dataclass(frozen=True)
class Claim:
    """What the paper says, where, and how it is judged."""

    text: str
    place: str
    theirs: Callable[[], Finding]
    ours: Callable[[Contests, Sequence[Agreement]], Finding]


def judge(results: Mapping[str, Results], people: Sequence[Agreement] = ()) -> tuple[Verdict, ...]:
    """A verdict for each claim.

    Args:
        results: what was run of each experiment.
        people: how far latent users agree with people who are known.
    """
    asked = {name: contests(found, MENTIONED) for name, found in results.items()}
    verdicts = []
    for claim in CLAIMS:
        theirs, ours = claim.theirs(), claim.ours(asked, people)
        verdicts.append(Verdict(claim.text, claim.place, theirs.holding, theirs.why, ours.holding, ours.why))
    return tuple(verdicts)


def _zoo(names: Sequence[str]) -> list[tuple[str, ...]]:
    return [published.IN_THE_ZOO[name] for name in names]


def _ranking(text: str, winners: Sequence[str], losers: Sequence[str], share: float = 1.0) -> Claim:
    return Claim(
        text,
        "RQ2, Table 1",
        lambda: printed(published.table1(), winners, losers, share),
        lambda found, people: measured(found.get("table1", ()), _zoo(winners), _zoo(losers), share),
    )


def _part(text: str, variant: str) -> Claim:
    return Claim(
        text,
        "RQ3, Table 2",
        lambda: printed(published.table2(), [published.OURS], [variant]),
        lambda found, people: measured(found.get("ablation", ()), MODEL, [(VARIANTS[variant],)]),
    )


def _drawn(text: str, place: str, ours: Callable[[Sequence[Contest]], Finding], experiment: str) -> Claim:
    figure = place.partition(", ")[2]
    return Claim(text, place, lambda: only_drawn(figure), lambda found, people: ours(found.get(experiment, ())))


def _one_person_each(found: Contests, people: Sequence[Agreement]) -> Finding:
    """Whether latent users are the people who are known to share the accounts."""
    if not people:
        return Finding("cannot be told", "Real logs do not say who watched, and no run on accounts with known people.")
    texts = [f"{one.dataset} {one.value:.2f} (95 %: {one.low:.2f} to {one.high:.2f})" for one in people]
    why = f"Agreement with the people (ARI; 1 the same, 0 by chance): {', '.join(texts)}; {ONE_PERSON} is asked."
    if all(one.low >= ONE_PERSON for one in people):
        return Finding("holds", why)
    return Finding("does not hold" if any(one.high < ONE_PERSON for one in people) else "cannot be told", why)


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
    _drawn(
        "LightGC²N trains faster than the other shared-account models, at every share of the data.",
        "RQ1, Figure 3 a, b",
        lambda found: costs.faster(found, _zoo(published.SHARED)),
        "efficiency",
    ),
    Claim(
        "It needs fewer parameters than the other shared-account models.",
        "RQ1, Figure 3 c, d",
        lambda: only_drawn("Figure 3 c, d"),
        lambda found, people: costs.fewer_parameters(
            found.get("efficiency", ()), _zoo(published.SHARED), found.get("table1", ())
        ),
    ),
    Claim(
        "Its cost grows linearly with the data.",
        "Method; RQ1",
        lambda: Finding("cannot be told", "Argued by a formula for two of its parts; no time is printed."),
        lambda found, people: costs.linear_time(found.get("efficiency", ())),
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
        lambda found: values.differs_by_dataset(found, "latent_users"),
        "hyperparameters",
    ),
    _drawn(
        "Temperature (β) and weight (γ) of the contrast are best at 0.8 or 0.9.",
        "RQ4, Figure 4 c, d",
        lambda found: values.best_lies_in(found, ("temperature", "contrast_weight"), {0.8, 0.9}),
        "hyperparameters",
    ),
    Claim(
        "The contrast pays only where β and γ are well chosen.",
        "RQ4, Figure 4 c, d",
        lambda: only_drawn("Figure 4 c, d"),
        lambda found, people: values.helps_only_at_some(
            found.get("hyperparameters", ()),
            found.get("ablation", ()),
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
    _drawn(
        "Its training time grows less with the data than that of its variants without capsules, alignment or all.",
        "A6, Figure 5 a, b",
        lambda found: costs.steadier(found, [VARIANTS[name] for name in ("C", "S", "A")]),
        "ablation-efficiency",
    ),
    _drawn(
        "Taking out the capsules or the alignment changes the number of parameters little.",
        "A6, Figure 5 c, d",
        lambda found: costs.little_change(found, [VARIANTS[name] for name in ("C", "S")]),
        "ablation-efficiency",
    ),
    _drawn(
        "Two graph layers (L = 2) are best.",
        "A7, Figure 6 a, b",
        lambda found: values.best_lies_in(found, ("layers",), {2.0}),
        "layers",
    ),
    _drawn(
        "With more than two layers accuracy falls.",
        "A7, Figure 6 a, b",
        lambda found: values.declines_after(found, "layers", 2.0),
        "layers",
    ),
    _drawn("Time and parameters grow with every layer.", "A7, Figure 6 c, d", costs.grows_with_layers, "layers"),
    _drawn(
        "They grow faster and faster with the number of layers.",
        "A7, Figure 6 c, d",
        costs.accelerates_with_layers,
        "layers",
    ),
)
