"""Claims about time and parameters.

Two times are told apart where they differ for every seed, and by more than 5 % either way; where runs shared a machine,
by more than a factor of 2 either way. Parameters are exact.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log

from lightgc2n.errors import MissingExtraError
from lightgc2n.reporting.contests import Contest
from lightgc2n.reporting.findings import NO_RUNS, Finding, counted, settle, tallied
from lightgc2n.reporting.measured import Measured
from lightgc2n.reporting.subject import CALLED, MODEL
from lightgc2n.reporting.values import sweep

SLACK = 1.05
SHARED = 2.0  # the same where runs shared a machine: others slow some epochs down and not others
LINEAR = 1.1  # time may grow with this power of the data and still be called linear
LITTLE = 0.1  # of the parameters
WIDTHS = {"embedding_width": "embedding", "capsule_width": "capsules"}  # of the model: most of its parameters
Span = tuple[float, float]


def span(seeds: Sequence[Measured]) -> Span:
    """Between which seconds an epoch takes, for each domain that it trains."""
    seconds = [seed.seconds_a_domain for seed in seeds]
    slack = SHARED if any(seed.at_once > 1 for seed in seeds) else SLACK
    return min(seconds) / slack, max(seconds) * slack


def less(one: Span, other: Span) -> int:
    """1 where the first is clearly less, -1 where it is clearly not, 0 where they overlap."""
    if one[1] < other[0]:
        return 1
    exact = one[0] == one[1] and other[0] == other[1]
    return -1 if exact or one[0] > other[1] else 0


def faster(given: Sequence[Contest], losers: Sequence[Sequence[str]]) -> Finding:
    """Whether the model's epochs take less time than those of all `losers`, at each share of the data."""
    signs, missing, ratios = [], 0, []
    for contest in _with_model(given):
        ours = _by_share(contest, [MODEL])
        for names in losers:
            theirs = _by_share(contest, names)
            missing += not theirs
            for share in sorted(ours.keys() & theirs.keys()):
                for seeds in _alike(theirs[share], ours[share][0].device):
                    signs.append(less(span(ours[share]), span(seeds)))
                    where = f"{_called(seeds[0])} on {contest.dataset}, with {100 * share:.0f} % of the data"
                    ratios.append((sum(span(ours[share])) / sum(span(seeds)), where))
    if not signs:
        return NO_RUNS
    ratio, where = max(ratios)
    return tallied(signs, f"Least in favour: an epoch takes {ratio:.2f} times as long as that of {where}", missing)


def fewer_parameters(
    given: Sequence[Contest], losers: Sequence[Sequence[str]], elsewhere: Sequence[Contest] = ()
) -> Finding:
    """Whether the model has fewer parameters for each domain it serves than all `losers`.

    Args:
        elsewhere: runs with settings of their own, as those of Table 1: they are named, and do not decide.
    """
    pairs, missing = _pairs(given, losers)
    if not pairs:
        return NO_RUNS
    asked, fewer = len(pairs) + missing, _fewer(pairs)
    told = f"{counted(fewer, len(pairs) - fewer, asked)}, with the settings of the efficiency runs{_settings(pairs)}"
    why = f"{told}. Least in favour: {_least(pairs)}.{_elsewhere(_pairs(elsewhere, losers)[0])}"
    return Finding(settle(fewer, len(pairs) - fewer, asked), why)


Pairs = dict[tuple[str, str], tuple[Measured, Measured]]  # dataset and rival -> the model, the rival


def _pairs(given: Sequence[Contest], losers: Sequence[Sequence[str]]) -> tuple[Pairs, int]:
    """The model beside each rival on each dataset, and how many rivals are not there."""
    pairs, missing = {}, 0
    for contest in _with_model(given):
        for names in losers:
            runs = contest.of_models(names)
            missing += not runs
            for other in (contest.runs[run][0] for run in runs):
                pairs[contest.dataset, _called(other)] = (_full(contest), other)
    return pairs, missing


def _ratio(ours: Measured, other: Measured) -> float:
    return ours.parameters_a_domain / other.parameters_a_domain


def _fewer(pairs: Pairs) -> int:
    """In how many comparisons the model has fewer."""
    return sum(_ratio(*pair) < 1 for pair in pairs.values())


def _least(pairs: Pairs) -> str:
    """The comparison that speaks most against the claim, with its numbers."""
    (dataset, _), most = max(pairs.items(), key=lambda pair: _ratio(*pair[1]))
    counts = [f"{_called(one)} {one.parameters_a_domain:,.0f} ({one.parameters:,} in all)" for one in most]
    return f"for each domain served on {dataset}, {'; '.join(counts)}"


def _settings(pairs: Pairs) -> str:
    """The model's widths, which make most of its parameters; nothing where runs do not say."""
    found = [ours.settings for ours, _ in pairs.values()]
    widths = {name: {str(one[name]) for one in found if name in one} for name in WIDTHS}
    told = [f"{what} {' or '.join(sorted(widths[name]))}" for name, what in WIDTHS.items() if widths[name]]
    return f" ({CALLED}: {', '.join(told)})" if told else ""


def _elsewhere(pairs: Pairs) -> str:
    """What the runs of Table 1 say of the same claim."""
    if not pairs:
        return ""
    fewer, asked, told = _fewer(pairs), len(pairs), f" With the settings of Table 1's runs{_settings(pairs)}"
    if fewer == asked:
        return f"{told} it has fewer too, in {asked} of {asked}."
    return f"{told} it has fewer in only {fewer} of {asked} comparisons. Least in favour there: {_least(pairs)}."


def linear_time(given: Sequence[Contest]) -> Finding:
    """Whether the time of an epoch grows no faster than the data."""
    signs, texts = [], []
    for contest in _with_model(given):
        timed = _by_share(contest, [MODEL])
        if len(timed) >= 3:
            points = [(log(share), log(seed.seconds_a_domain)) for share, seeds in timed.items() for seed in seeds]
            power, low, high = slope(points)
            signs.append(1 if high <= LINEAR else -1 if low > LINEAR else 0)
            texts.append(f"on {contest.dataset} with power {power:.2f} of the data (95 %: {low:.2f} to {high:.2f})")
    if not signs:
        return Finding("cannot be told", "Fewer than three shares of the data were timed.")
    return tallied(signs, f"Time grows {'; '.join(texts)}, and up to {LINEAR} counts as linear")


def slope(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """The slope of the line of least squares, and its 95 % interval."""
    try:
        from scipy.stats import linregress, t
    except ImportError:
        raise MissingExtraError("scipy", "report") from None

    fit = linregress(*zip(*points, strict=True))
    half = float(t.ppf(0.975, len(points) - 2) * fit.stderr)
    return float(fit.slope), float(fit.slope) - half, float(fit.slope) + half


def steadier(given: Sequence[Contest], variants: Sequence[str]) -> Finding:
    """Whether the model's time grows less with the data than that of each of its variants."""
    signs, texts, missing = [], [], 0
    for contest in _with_model(given):
        ours = _growth(contest, MODEL)
        for name in variants:
            other = _growth(contest, name)
            if ours is None or other is None:
                missing += 1
                continue
            signs.append(less(ours, other))
            texts.append(f"{_middle(ours)}, of {name} {_middle(other)}, on {contest.dataset}")
    if not signs:
        return NO_RUNS
    return tallied(signs, f"From the least share to all of the data the time grows by {'; '.join(texts)}", missing)


def little_change(given: Sequence[Contest], variants: Sequence[str]) -> Finding:
    """Whether the parameters of each variant differ little from the model's."""
    changes, missing = {}, 0
    for contest in _with_model(given):
        for name in variants:
            runs = contest.of_models([name])
            missing += not runs
            for run in runs:
                change = contest.runs[run][0].parameters / _full(contest).parameters - 1
                changes[f"{name} on {contest.dataset} {_signed(100 * change)} %"] = change
    if not changes:
        return NO_RUNS
    signs = [1 if abs(change) < LITTLE else -1 for change in changes.values()]
    return tallied(signs, f"{'; '.join(changes)}, and under {100 * LITTLE:.0f} % counts as little", missing)


def grows_with_layers(given: Sequence[Contest]) -> Finding:
    """Whether both time and parameters grow with each layer."""
    found = _over_layers(given)
    signs = [less(one, other) for course in found for one, other in pairwise(course)]
    return tallied(signs, _course(found)) if signs else NO_RUNS


def accelerates_with_layers(given: Sequence[Contest]) -> Finding:
    """Whether each layer adds more time and more parameters than the one before it."""
    found = _over_layers(given)
    steps = [[(after[0] - here[1], after[1] - here[0]) for here, after in pairwise(course)] for course in found]
    signs = [less(one, other) for course in steps for one, other in pairwise(course)]
    return tallied(signs, _course(found)) if signs else NO_RUNS


def _over_layers(given: Sequence[Contest]) -> list[list[Span]]:
    """Seconds an epoch, then parameters, by rising number of layers, for each dataset."""
    courses = []
    for contest in given:
        runs = sweep(contest, "layers")
        ordered = [contest.runs[runs[value]] for value in sorted(runs)]
        if len(ordered) > 1:
            courses += [[span(seeds) for seeds in ordered], [(float(seeds[0].parameters),) * 2 for seeds in ordered]]
    return courses


def _course(found: Sequence[Sequence[Span]]) -> str:
    seconds, parameters = found[:2]
    times = ", ".join(f"{(ends[0] * ends[1]) ** 0.5:.3g}" for ends in seconds)
    return f"By layers {times} s an epoch, {', '.join(f'{count:,.0f}' for count, _ in parameters)} parameters"


def _with_model(given: Sequence[Contest]) -> list[Contest]:
    return [contest for contest in given if contest.of_models([MODEL])]


def _full(contest: Contest) -> Measured:
    return contest.runs[contest.of_models([MODEL])[0]][0]


def _by_share(contest: Contest, models: Sequence[str]) -> dict[float, list[Measured]]:
    """The runs of these models by the share of the data that they saw."""
    found: dict[float, list[Measured]] = {}
    for run in contest.of_models(models):
        for seed in contest.runs[run]:
            found.setdefault(seed.data_share, []).append(seed)
    return found


def _alike(seeds: Sequence[Measured], device: str) -> list[list[Measured]]:
    """The seeds of each model on one device: times on two devices cannot be compared."""
    found: dict[str, list[Measured]] = {}
    for seed in seeds:
        if seed.device == device:
            found.setdefault(_called(seed), []).append(seed)
    return list(found.values())


def _called(seed: Measured) -> str:
    return seed.model if seed.domains == 1 else f"{seed.model} ({seed.domains} domains at once)"


def _growth(contest: Contest, model: str) -> Span | None:
    """How many times as long an epoch takes on all data as on the least share, low and high; none if that took none."""
    found = {share: span(seeds) for share, seeds in _by_share(contest, [model]).items()}
    if len(found) < 2 or min(found[min(found)]) <= 0:
        return None
    least, most = found[min(found)], found[max(found)]
    return most[0] / least[1], most[1] / least[0]


def _signed(value: float) -> str:
    rounded = round(value, 1)
    return f"{rounded:+.1f}".replace("-", "−") if rounded else "0.0"


def _middle(ends: Span) -> str:
    return f"{(ends[0] * ends[1]) ** 0.5:.2f}"
