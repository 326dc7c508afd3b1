"""Claims about time and parameters.

Two times differ clearly if they differ for every seed and by more than 5 %, or by more than a factor of 2 if runs
shared a machine. Parameter counts are exact.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import log

from lightgc2n.errors import MissingExtraError
from lightgc2n.experiments.results import RunResult
from lightgc2n.paper.document import MODEL
from lightgc2n.paper.findings import NO_RUNS, Comparison, Finding, counted, settle, tallied, widths_in
from lightgc2n.paper.setting_claims import sweep

SLACK = 1.05
SHARED = 2.0  # the factor if runs shared a machine, which slows some epochs down and not others
LINEAR = 1.1  # growth up to this power of the data counts as linear
LITTLE = 0.1  # of the parameters
ONE_USER = ", one latent user"  # ends the label of a model whose default is another number
Span = tuple[float, float]


def span(seeds: Sequence[RunResult]) -> Span:
    """The least and the most seconds per epoch and domain."""
    seconds = [seed.seconds_per_domain for seed in seeds]
    slack = SHARED if any(seed.at_once > 1 for seed in seeds) else SLACK
    return min(seconds) / slack, max(seconds) * slack


def less(one: Span, other: Span) -> int:
    """Return 1 if the first is clearly less, -1 if it is clearly not, 0 if they overlap."""
    if one[1] < other[0]:
        return 1
    exact = one[0] == one[1] and other[0] == other[1]
    return -1 if exact or one[0] > other[1] else 0


def faster(every: Sequence[Comparison], losers: Sequence[Sequence[str]]) -> Finding:
    """Whether the model's epochs take less time than those of all `losers`, at each share of the data."""
    signs: list[int] = []
    places: list[str] = []
    ratios, missing = [], 0
    for compared in _with_model(every):
        before = len(signs)
        for names in losers:
            missing += not compared.of_models(names)
            for ours, theirs in _with_equal_users(compared, names):
                for seeds in _alike(theirs, ours[0].device):
                    signs.append(less(span(ours), span(seeds)))
                    data = f"{100 * seeds[0].training_share:.0f} % of the data"
                    where = f"{_called(seeds[0])} on {compared.dataset}, with {data}"
                    ratios.append((sum(span(ours)) / sum(span(seeds)), where))
        on_dataset = signs[before:]
        places.append(f"{on_dataset.count(1)} of {len(on_dataset)} on {compared.dataset}")
    if not signs:
        return NO_RUNS
    ratio, where = max(ratios)
    least = f"Least in favour: an epoch takes {ratio:.2f} times as long as that of {where}"
    return tallied(signs, f"By place: {'; '.join(places)}. {least}" if len(places) > 1 else least, missing)


def fewer_parameters(every: Sequence[Comparison], losers: Sequence[Sequence[str]]) -> Finding:
    """Whether the model has fewer parameters for each domain it serves than all `losers`."""
    pairs, missing = _pairs(every, losers)
    if not pairs:
        return NO_RUNS
    total, fewer = len(pairs) + missing, _fewer(pairs)
    counts = f"{counted(fewer, len(pairs) - fewer, total)}{_widths(pairs)}"
    return Finding(settle(fewer, len(pairs) - fewer, total), f"{counts}. Least in favour: {_least(pairs)}.")


Pairs = dict[tuple[str, str], tuple[RunResult, RunResult]]  # dataset and rival -> the model, the rival


def _pairs(every: Sequence[Comparison], losers: Sequence[Sequence[str]]) -> tuple[Pairs, int]:
    """The model and each rival on each dataset, and the number of missing rivals."""
    pairs: Pairs = {}
    missing = 0
    for compared in _with_model(every):
        for names in losers:
            runs = compared.of_models(names)
            missing += not runs
            for ours, theirs in _with_equal_users(compared, names):
                for other in theirs:
                    pairs.setdefault((compared.dataset, _called(other)), (ours[0], other))
    return pairs, missing


def _ratio(ours: RunResult, other: RunResult) -> float:
    return ours.parameters_per_domain / other.parameters_per_domain


def _fewer(pairs: Pairs) -> int:
    """In how many comparisons the model has fewer."""
    return sum(_ratio(*pair) < 1 for pair in pairs.values())


def _least(pairs: Pairs) -> str:
    """The comparison that is least in favour of the claim, with its numbers."""
    (dataset, _), most = max(pairs.items(), key=lambda pair: _ratio(*pair[1]))
    counts = [f"{_called(one)} {one.parameters_per_domain:,.0f} ({one.parameters:,} in all)" for one in most]
    return f"for each domain served on {dataset}, {'; '.join(counts)}"


def _widths(pairs: Pairs) -> str:
    """Return the widths of all models compared, which determine most of their parameters; empty if unknown."""
    widths = sorted({width for pair in pairs.values() for run in pair for width in widths_in(run.settings)})
    if not widths:
        return ""
    return f", every width {widths[0]}" if len(widths) == 1 else f", with widths from {widths[0]} to {widths[-1]}"


def linear_time(every: Sequence[Comparison]) -> Finding:
    """Whether the time of an epoch grows no faster than the data."""
    signs, texts = [], []
    for compared in _with_model(every):
        timed = _by_share(compared, [MODEL])
        if len(timed) >= 3:
            points = [(log(share), log(seed.seconds_per_domain)) for share, seeds in timed.items() for seed in seeds]
            power, low, high = slope(points)
            signs.append(1 if high <= LINEAR else -1 if low > LINEAR else 0)
            texts.append(f"on {compared.dataset} with power {power:.2f} of the data (95 %: {low:.2f} to {high:.2f})")
    if not signs:
        return Finding("cannot be told", "Fewer than three shares of the data were timed.")
    return tallied(signs, f"Time grows {'; '.join(texts)}, and up to {LINEAR} counts as linear")


def slope(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """The least-squares slope and its 95 % interval."""
    try:
        from scipy.stats import linregress, t
    except ImportError:
        raise MissingExtraError("scipy", "report") from None

    fit = linregress(*zip(*points, strict=True))
    half = float(t.ppf(0.975, len(points) - 2) * fit.stderr)
    return float(fit.slope), float(fit.slope) - half, float(fit.slope) + half


def steadier(every: Sequence[Comparison], variants: Sequence[str]) -> Finding:
    """Whether the model's time grows less with the data than that of each of its variants."""
    signs, texts, missing = [], [], 0
    for compared in _with_model(every):
        ours = _growth(compared, MODEL)
        for name in variants:
            other = _growth(compared, name)
            if ours is None or other is None:
                missing += 1
                continue
            signs.append(less(ours, other))
            texts.append(f"{_middle(ours)}, of {name} {_middle(other)}, on {compared.dataset}")
    if not signs:
        return NO_RUNS
    return tallied(signs, f"From the least share to all of the data the time grows by {'; '.join(texts)}", missing)


def little_change(every: Sequence[Comparison], variants: Sequence[str]) -> Finding:
    """Whether the parameters of each variant differ little from the model's."""
    changes, missing = {}, 0
    for compared in _with_model(every):
        for name in variants:
            runs = compared.of_models([name])
            missing += not runs
            for run in runs:
                change = compared.runs[run][0].parameters / _full(compared).parameters - 1
                changes[f"{name} on {compared.dataset} {_signed(100 * change)} %"] = change
    if not changes:
        return NO_RUNS
    signs = [1 if abs(change) < LITTLE else -1 for change in changes.values()]
    return tallied(signs, f"{'; '.join(changes)}, and under {100 * LITTLE:.0f} % counts as little", missing)


def grows_with_layers(every: Sequence[Comparison]) -> Finding:
    """Whether both time and parameters grow with each layer."""
    courses = _over_layers(every)
    signs = [less(one, other) for course in courses for one, other in pairwise(course)]
    return tallied(signs, _course(courses)) if signs else NO_RUNS


def accelerates_with_layers(every: Sequence[Comparison]) -> Finding:
    """Whether each layer adds more time and more parameters than the one before it."""
    courses = _over_layers(every)
    steps = [[(after[0] - here[1], after[1] - here[0]) for here, after in pairwise(course)] for course in courses]
    signs = [less(one, other) for course in steps for one, other in pairwise(course)]
    return tallied(signs, _course(courses)) if signs else NO_RUNS


def _over_layers(every: Sequence[Comparison]) -> list[list[Span]]:
    """Seconds an epoch, then parameters, by rising number of layers, for each dataset."""
    courses = []
    for compared in every:
        runs = sweep(compared, "layers")
        ordered = [compared.runs[runs[value]] for value in sorted(runs)]
        if len(ordered) > 1:
            courses += [[span(seeds) for seeds in ordered], [(float(seeds[0].parameters),) * 2 for seeds in ordered]]
    return courses


def _course(courses: Sequence[Sequence[Span]]) -> str:
    seconds, parameters = courses[:2]
    times = ", ".join(f"{(ends[0] * ends[1]) ** 0.5:.3g}" for ends in seconds)
    return f"By layers {times} s an epoch, {', '.join(f'{count:,.0f}' for count, _ in parameters)} parameters"


def _with_model(every: Sequence[Comparison]) -> list[Comparison]:
    return [compared for compared in every if compared.of_models([MODEL])]


def _full(compared: Comparison) -> RunResult:
    return compared.runs[compared.of_models([MODEL])[0]][0]


def _with_equal_users(compared: Comparison, models: Sequence[str]) -> Iterator[tuple[list[RunResult], list[RunResult]]]:
    """Yield the model's and the others' runs on each share of the data: with default settings, then one latent user."""
    for one_user in (False, True):
        ours, theirs = _by_share(compared, [MODEL], one_user), _by_share(compared, models, one_user)
        yield from ((ours[share], theirs[share]) for share in sorted(ours.keys() & theirs.keys()))


def _by_share(compared: Comparison, models: Sequence[str], one_user: bool = False) -> dict[float, list[RunResult]]:
    """The runs of these models by the share of the data that they saw; those timed with one latent user are apart."""
    shares: dict[float, list[RunResult]] = {}
    for run in compared.of_models(models):
        for seed in compared.runs[run]:
            if seed.label.endswith(ONE_USER) == one_user:
                shares.setdefault(seed.training_share, []).append(seed)
    return shares


def _alike(seeds: Sequence[RunResult], device: str) -> list[list[RunResult]]:
    """The seeds of each model on one device: times on two devices cannot be compared."""
    models: dict[str, list[RunResult]] = {}
    for seed in seeds:
        if seed.device == device:
            models.setdefault(_called(seed), []).append(seed)
    return list(models.values())


def _called(seed: RunResult) -> str:
    if seed.domains > 1:
        return f"{seed.model} ({seed.domains} domains at once)"
    return seed.label if seed.label.startswith(f"{seed.model}, ") else seed.model  # with the settings that differ


def _growth(compared: Comparison, model: str) -> Span | None:
    """Return the bounds of the time on all data divided by that on the smallest share; None if zero or missing."""
    spans = {share: span(seeds) for share, seeds in _by_share(compared, [model]).items()}
    if len(spans) < 2 or min(spans[min(spans)]) <= 0:
        return None
    least, most = spans[min(spans)], spans[max(spans)]
    return most[0] / least[1], most[1] / least[0]


def _signed(value: float) -> str:
    rounded = round(value, 1)
    return f"{rounded:+.1f}".replace("-", "−") if rounded else "0.0"


def _middle(ends: Span) -> str:
    return f"{(ends[0] * ends[1]) ** 0.5:.2f}"
