"""The first screen: one sentence that says what was found, then how LightGC²N stands in each test.

Everything is computed from the runs of Table 1. A floor counts as better by more than chance in a test where one of
the floors is clearly above LightGC²N, by the same rule as for the claims, corrected over all floors and tests.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from lightgc2n.reporting import published
from lightgc2n.reporting.arithmetic import METRICS
from lightgc2n.reporting.contests import DECISIVE, Contest, contests, decided
from lightgc2n.reporting.document import Opening, Scored, Standing
from lightgc2n.reporting.findings import Cells
from lightgc2n.reporting.measured import Results
from lightgc2n.reporting.subject import CALLED, MODEL, OURS, is_ours

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
    "target-in-input": f"{AS_PUBLISHED}, answer in the question",
}
NAMES = "Tests are called by the names of their data."
RULE, NO_RULE = "a rule that only counts", "no rule that only counts"


def opening_of(
    results: Results,
    floors: Collection[str],
    paper: Cells | None = None,
    beside: Mapping[tuple[str, str], str] | None = None,
    data: Mapping[str, str] | None = None,
) -> Opening | None:
    """What a reader in a hurry takes home; nothing where nothing was run.

    Args:
        results: of Table 1.
        floors: models of the zoo that only count.
        paper: the paper's own table, where the report has it.
        beside: the paper's name of a dataset, by our dataset and protocol, where its table is of that test.
        data: what is to be known about a dataset beside the paper's.
    """
    tests = contests(results)
    tests = [test for test in tests if MODEL in test.runs] or tests
    if not tests:
        return None
    cells, named = paper or {}, beside or {}
    printed = {which: cells[name, published.OURS][DECISIVE] for which, name in named.items() if cells and name}
    standings = [_standing(test, floors, printed.get((test.dataset, test.protocol))) for test in tests]
    finding = _finding(standings, _beyond_chance(results, floors))
    more = _first_in_print(cells, floors) if cells else ""
    beside_paper = any(one.printed is not None for one in standings)
    notes = (NAMES, *_methods(tests, floors), *_runs(tests, floors, beside_paper), *_data(standings, data or {}))
    return Opening(f"{finding}{more}.", SCORE, tuple(standings), notes)


def _standing(test: Contest, floors: Collection[str], printed: float | None) -> Standing:
    scores = {run: 100 * test.mean(run) for run in test.runs}
    own = scores.get(MODEL)
    return Standing(
        test=test.dataset,
        how=TESTED.get(test.protocol, test.protocol),
        own=own,
        place=None if own is None else 1 + sum(score > own for score in scores.values()),
        methods=len(scores),
        floor=_best(test, floors, {run: scores[run] for run in test.of_models(list(floors))}),
        best=_best(test, floors, scores),
        printed=printed,
    )


def _best(test: Contest, floors: Collection[str], scores: Mapping[str, float]) -> Scored | None:
    if not scores:
        return None
    run = max(scores, key=lambda run: scores[run])
    kind = "floor" if test.models[run] in floors else "ours" if is_ours(test.models[run]) else ""
    return Scored(CALLED if run == MODEL else run, scores[run], kind)


def _beyond_chance(results: Results, floors: Collection[str]) -> int:
    """In how many tests some floor is clearly above the model."""
    tests = [test for test in contests(results, {MODEL, *floors}) if MODEL in test.runs]
    asked = [(test, run) for test in tests for run in test.of_models(list(floors))]
    signs = decided([test.difference(run, MODEL) for test, run in asked])
    return len({(test.dataset, test.protocol) for (test, _), sign in zip(asked, signs, strict=True) if sign == 1})


def _finding(standings: Sequence[Standing], clear: int) -> str:
    """The first half of the sentence in bold."""
    pairs = [(one.own, one.floor.value) for one in standings if one.own is not None and one.floor is not None]
    if pairs:
        better = sum(floor > own for own, floor in pairs)
        which = "" if len(pairs) == len(standings) else " with floors"
        return _counted(better, len(pairs), f"more accurate than {CALLED}", which) + _sure(better, clear)
    if any(one.own is not None for one in standings):
        first, tests = sum(one.place == 1 for one in standings), len(standings)
        return (
            f"{CALLED} is first in {first} of {tests} {'test' if tests == 1 else 'tests'}; {NO_RULE} was run beside it"
        )
    best = sum(one.best is not None and one.best.kind == "floor" for one in standings)
    return f"{CALLED} was not run. {_counted(best, len(standings), 'the most accurate of all')}"


def _counted(rules: int, number: int, what: str, which: str = "") -> str:
    """In how many tests a rule is what is said."""
    if number == 1:
        return f"In the one test{which} {RULE if rules else NO_RULE} is {what}"
    tests = f"{number} tests{which}"
    return f"In {rules} of {tests} {RULE} is {what}" if rules else f"In none of {tests} is {RULE} {what}"


def _sure(better: int, clear: int) -> str:
    """How much of that cannot be chance."""
    if better <= 1:
        return "" if not better else ", by more than chance" if clear else ", which may be chance"
    return f", in {({0: 'none', better: 'all'}).get(clear, clear)} of them by more than chance"


def _first_in_print(paper: Cells, floors: Collection[str]) -> str:
    """The second half: what the paper's table says."""
    datasets = list(dict.fromkeys(dataset for dataset, _ in paper))
    models = {model for _, model in paper}
    first = [
        all(paper[data, published.OURS][name] >= paper[data, other][name] for other in models for name in METRICS)
        for data in datasets
    ]
    where = "everywhere" if all(first) else f"on {sum(first)} of {len(first)} datasets" if any(first) else "nowhere"
    counts = any(name in floors for model in models for name in published.IN_THE_ZOO.get(model, ()))
    return f"; in the paper's tables{'' if counts else ', which have no such rule,'} {CALLED} is first {where}"


def _methods(tests: Sequence[Contest], floors: Collection[str]) -> Iterator[str]:
    """How many of the methods are floors, and whose the others are."""
    counted = [len(test.of_models(list(floors))) for test in tests]
    words = []
    if any(counted):
        methods = _span([len(test.runs) for test in tests])
        share = f"{_span(counted)} of the {methods} methods in {'each' if len(tests) > 1 else 'the'} test"
        words.append(f"Floors are rules that only count and learn nothing: {share}.")
    if any(is_ours(model) for test in tests for model in test.models.values()):
        words.append(f"{OURS} is a model of ours, not the paper's.")
    if words:
        yield " ".join(words)


def _runs(tests: Sequence[Contest], floors: Collection[str], printed: bool) -> Iterator[str]:
    """What the rows by the published protocol are: runs of ours."""
    leaking = [test for test in tests if not test.honest]
    if len(leaking) == len(tests):
        yield "No honest test was run."
    trained = [seeds for test in leaking for run, seeds in test.runs.items() if test.models[run] not in floors]
    if trained:
        seeds = _span([len(one) for one in trained])
        budgets = [seed.most_epochs for one in trained for seed in one if seed.most_epochs is not None]
        with_epochs = f", at most {_span(budgets)} epochs" if budgets else ""
        theirs = "; the paper's own numbers stand beside them" if printed else ""
        rows = f"Rows “{AS_PUBLISHED}” are runs of ours ({seeds} {'seed' if seeds == '1' else 'seeds'}{with_epochs})"
        yield f"{rows}{theirs}."


def _data(standings: Sequence[Standing], data: Mapping[str, str]) -> Iterator[str]:
    """What is to be known about datasets, those with the same note together."""
    beside = [one.test for one in standings if one.printed is not None and one.test in data]
    for note in dict.fromkeys(data[name] for name in beside):
        yield f"{', '.join(name for name in beside if data[name] == note)}: {note}"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
