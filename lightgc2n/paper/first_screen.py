"""The first screen: the main finding in one sentence, then the result of LightGC²N in each test.

Everything is computed from the runs of Table 1. A simple baseline is better by more than chance in a test if one of
them is clearly above LightGC²N, by the rule of the claims, corrected over all baselines and tests.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from lightgc2n.experiments.results import METRICS, ResultGroup
from lightgc2n.metrics.paired_tests import DECISIVE, decided
from lightgc2n.paper import published
from lightgc2n.paper.document import CALLED, MODEL, OURS, Opening, Scored, Standing, is_ours
from lightgc2n.paper.findings import Cells, Comparison, comparisons

SCORE = (
    "The scores are MRR@20: 100 % if the right item always stands first in the list, 0 % if never among the first 20."
)
AS_PUBLISHED = "as the paper tests"
TESTED = {
    "last": "honest",
    "time": "honest, cut in time",
    "cold-accounts": "honest, new accounts",
    "windows": AS_PUBLISHED,
    "windows-without-copies": f"{AS_PUBLISHED}, without copies",
    "target-in-input": f"{AS_PUBLISHED}, target in the input",
}
NAMES = "Tests have the names of their data."
RULE, NO_RULE = "a rule that only counts", "no rule that only counts"


def opening_of(
    results: Sequence[ResultGroup],
    simple: Collection[str],
    paper: Cells | None = None,
    beside: Mapping[tuple[str, str], str] | None = None,
    data: Mapping[str, str] | None = None,
) -> Opening | None:
    """Return the first screen; None if nothing was run.

    Args:
        results: of Table 1.
        simple: names of the simple baselines.
        paper: the paper's own table.
        beside: the paper's name of a dataset, by our dataset and protocol, if its table covers that test.
        data: notes on datasets that are compared with the paper's.
    """
    tests = comparisons(results)
    tests = [test for test in tests if MODEL in test.runs] or tests
    if not tests:
        return None
    cells, named = paper or {}, beside or {}
    printed = {which: cells[name, published.OURS][DECISIVE] for which, name in named.items() if cells and name}
    standings = [_standing(test, simple, printed.get((test.dataset, test.protocol))) for test in tests]
    finding = _finding(standings, _beyond_chance(results, simple))
    more = _first_in_print(cells, simple) if cells else ""
    beside_paper = any(one.printed is not None for one in standings)
    notes = (NAMES, *_methods(tests, simple), *_runs(tests, simple, beside_paper), *_data(standings, data or {}))
    return Opening(f"{finding}{more}.", SCORE, tuple(standings), notes)


def _standing(test: Comparison, simple: Collection[str], printed: float | None) -> Standing:
    scores = {run: 100 * test.mean(run) for run in test.runs}
    own = scores.get(MODEL)
    return Standing(
        test=test.dataset,
        how=TESTED.get(test.protocol, test.protocol),
        own=own,
        place=None if own is None else 1 + sum(score > own for score in scores.values()),
        methods=len(scores),
        simple=_best(test, simple, {run: scores[run] for run in test.of_models(list(simple))}),
        best=_best(test, simple, scores),
        printed=printed,
        ranking=tuple(_ranked(test, simple, scores)),
    )


def _best(test: Comparison, simple: Collection[str], scores: Mapping[str, float]) -> Scored | None:
    first = next(iter(_ranked(test, simple, scores)), None)
    return first if first is None or first.kind != "model" else replace(first, kind="")


def _ranked(test: Comparison, simple: Collection[str], scores: Mapping[str, float]) -> Iterator[Scored]:
    """The methods with their scores, best first."""
    for run in sorted(scores, key=lambda run: -scores[run]):
        model = test.models[run]
        kind = "model" if run == MODEL else "simple" if model in simple else "ours" if is_ours(model) else ""
        yield Scored(CALLED if run == MODEL else run, scores[run], kind)


def _beyond_chance(results: Sequence[ResultGroup], simple: Collection[str]) -> int:
    """In how many tests a simple baseline is clearly above the model."""
    tests = [test for test in comparisons(results, {MODEL, *simple}) if MODEL in test.runs]
    pairs = [(test, run) for test in tests for run in test.of_models(list(simple))]
    signs = decided([test.difference(run, MODEL) for test, run in pairs])
    return len({(test.dataset, test.protocol) for (test, _), sign in zip(pairs, signs, strict=True) if sign == 1})


def _finding(standings: Sequence[Standing], clear: int) -> str:
    """The first half of the sentence in bold."""
    pairs = [(one.own, one.simple.value) for one in standings if one.own is not None and one.simple is not None]
    if pairs:
        better = sum(rule > own for own, rule in pairs)
        which = "" if len(pairs) == len(standings) else " with simple baselines"
        return _counted(better, len(pairs), f"more accurate than {CALLED}", which) + _sure(better, clear)
    if any(one.own is not None for one in standings):
        first, tests = sum(one.place == 1 for one in standings), len(standings)
        return (
            f"{CALLED} is first in {first} of {tests} {'test' if tests == 1 else 'tests'}; {NO_RULE} was run beside it"
        )
    best = sum(one.best is not None and one.best.kind == "simple" for one in standings)
    return f"{CALLED} was not run. {_counted(best, len(standings), 'the most accurate of all')}"


def _counted(rules: int, number: int, what: str, which: str = "") -> str:
    """In how many tests a simple baseline is `what`."""
    if number == 1:
        return f"In the one test{which} {RULE if rules else NO_RULE} is {what}"
    tests = f"{number} tests{which}"
    return f"In {rules} of {tests} {RULE} is {what}" if rules else f"In none of {tests} is {RULE} {what}"


def _sure(better: int, clear: int) -> str:
    """Return how many of these are beyond chance."""
    if better <= 1:
        return "" if not better else ", by more than chance" if clear else ", which may be chance"
    return f", in {({0: 'none', better: 'all'}).get(clear, clear)} of them by more than chance"


def _first_in_print(paper: Cells, simple: Collection[str]) -> str:
    """The second half: the rank of the model in the paper's table."""
    datasets = list(dict.fromkeys(dataset for dataset, _ in paper))
    models = {model for _, model in paper}
    first = [
        all(paper[data, published.OURS][name] >= paper[data, other][name] for other in models for name in METRICS)
        for data in datasets
    ]
    where = "everywhere" if all(first) else f"on {sum(first)} of {len(first)} datasets" if any(first) else "nowhere"
    counts = any(name in simple for model in models for name in published.IN_THE_ZOO.get(model, ()))
    return f"; in the paper's tables{'' if counts else ', which have no such rule,'} {CALLED} is first {where}"


def _methods(tests: Sequence[Comparison], simple: Collection[str]) -> Iterator[str]:
    """How many of the methods are simple baselines, and which are ours."""
    counted = [len(test.of_models(list(simple))) for test in tests]
    words = []
    if any(counted):
        methods = _span([len(test.runs) for test in tests])
        share = f"{_span(counted)} of the {methods} methods in {'each' if len(tests) > 1 else 'the'} test"
        rules = "rules that count, some with one or two numbers fitted to validation events"
        words.append(f"Simple baselines are {rules}: {share}.")
    if any(is_ours(model) for test in tests for model in test.models.values()):
        words.append(f"{OURS} is a model of ours, not the paper's.")
    if words:
        yield " ".join(words)


def _runs(tests: Sequence[Comparison], simple: Collection[str], printed: bool) -> Iterator[str]:
    """Notes on our runs by the published protocol."""
    leaking = [test for test in tests if not test.honest]
    if len(leaking) == len(tests):
        yield "No honest test was run."
    trained = [seeds for test in leaking for run, seeds in test.runs.items() if test.models[run] not in simple]
    if trained:
        seeds = _span([len(one) for one in trained])
        budgets = [seed.most_epochs for one in trained for seed in one if seed.most_epochs is not None]
        with_epochs = f", at most {_span(budgets)} epochs" if budgets else ""
        theirs = "; the paper's own numbers stand beside them" if printed else ""
        rows = f"Rows “{AS_PUBLISHED}” are runs of ours ({seeds} {'seed' if seeds == '1' else 'seeds'}{with_epochs})"
        yield f"{rows}{theirs}."


def _data(standings: Sequence[Standing], data: Mapping[str, str]) -> Iterator[str]:
    """Notes on datasets, those with the same note together."""
    beside = [one.test for one in standings if one.printed is not None and one.test in data]
    for note in dict.fromkeys(data[name] for name in beside):
        yield f"{', '.join(name for name in beside if data[name] == note)}: {note}"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
