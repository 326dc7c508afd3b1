"""Each claim is judged by the paper's numbers and by ours, and what is missing or close cannot be told."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from lightgc2n.experiments.results import RunResult
from lightgc2n.paper import claims, cost_claims, published, setting_claims
from lightgc2n.paper.claims import CLAIMS, Agreement
from lightgc2n.paper.document import Verdict
from lightgc2n.paper.findings import Comparison, Finding, comparisons, measured, printed, settle
from tests.paper.example import VARIANTS, Key, grouped, results, run

NOT_SAID = "cannot be told"
Results = Mapping[Key, Sequence[RunResult]]


def judge(found: Mapping[str, Results], people: Sequence[Agreement] = ()) -> tuple[Verdict, ...]:
    return claims.judge({name: grouped(runs) for name, runs in found.items()}, people)


def compare(found: Results) -> list[Comparison]:
    return comparisons(grouped(found))


def verdicts(found: dict[str, Results]) -> dict[str, Verdict]:
    return {claim.text.split(":")[0]: verdict for claim, verdict in zip(CLAIMS, judge(found), strict=True)}


def ask(rule: Callable[..., Finding], found: Results, *about: object) -> Finding:
    return rule(compare(found), *about)


def of_skill(**skills: float) -> Results:
    names = {name.replace("_", "-"): skill for name, skill in skills.items()}
    return {Key("E", "last", name): [run(name, skill)] for name, skill in names.items()}


def swept(setting: str, skills: dict[float, float], dataset: str = "E") -> dict[Key, list[RunResult]]:
    return {
        Key(dataset, "last", f"{setting} {value:g}"): [run(skill=skill, **{setting: value})]
        for value, skill in skills.items()
    }


def test_all_sections_have_claims() -> None:
    assert len(CLAIMS) >= 14
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS)
    for place in ("RQ1", "RQ2", "RQ3", "RQ4", "A6", "A7"):
        assert any(place in claim.place for claim in CLAIMS), place


def test_without_runs_nothing_of_ours_can_be_told() -> None:
    assert {verdict.ours for verdict in judge({})} == {NOT_SAID}


def test_what_their_tables_say() -> None:
    said = verdicts({})
    assert said["LightGC²N is the most accurate of all ten models, on every dataset."].theirs == "holds"
    assert said["Linear attention helps"].theirs == "holds"
    order = said["Sequential models are more accurate than traditional ones."]
    cells = published.table1()
    wins = 0
    for dataset, late, early in product(published.DATASETS, ("HRNN", "NAIS", "TGSRec"), ("NCF", "LightGCN")):
        for metric, value in cells[dataset, late].items():
            wins += value > cells[dataset, early][metric]
    assert order.theirs == "does not hold"
    assert order.theirs_why.startswith(f"{wins} of 96 printed comparisons agree. Against it, for example: RC@5 on HA-B")
    drawn = said["Two graph layers (L = 2) are best."]
    assert (drawn.theirs, drawn.theirs_why) == (NOT_SAID, "Figure 6 a, b shows it without printing a number.")


def test_printed_by_hand() -> None:
    low = {"RC@5": 20.0, "RC@20": 30.0, "MRR@5": 10.0, "MRR@20": 11.0}
    cells = {("E", "a"): {name: value + 1 for name, value in low.items()}, ("E", "b"): low}
    assert printed(cells, ["a"], ["b"]).why == "4 of 4 printed comparisons agree."
    cells["E", "b"] = low | {"MRR@20": 13.0}  # 2 points more for 10 more hits: above 10/6 = 1.67 by 1.33
    found = printed(cells, ["a"], ["b"])
    assert found.holding == "does not hold"
    assert found.why == (
        "3 of 4 printed comparisons agree. Against it, for example: MRR@20 on E, a 12.00, b 13.00. "
        "1 of the 2 entries used break arithmetic (marked below)."
    )
    mostly = printed(cells, ["a"], ["b"], share=0.75)
    assert mostly.holding == "holds"
    assert mostly.why.startswith("3 of 4 printed comparisons agree; 3 are enough.")


@pytest.mark.parametrize(
    ("wins", "losses", "asked", "share", "expected"),
    [
        (4, 0, 4, 1.0, "holds"),
        (3, 1, 4, 1.0, "does not hold"),
        (3, 0, 4, 1.0, NOT_SAID),
        (3, 1, 4, 0.75, "holds"),
        (2, 2, 4, 0.75, "does not hold"),
        (2, 1, 4, 0.75, NOT_SAID),
        (0, 0, 0, 1.0, NOT_SAID),
    ],
)
def test_settled(wins: int, losses: int, asked: int, share: float, expected: str) -> None:
    assert settle(wins, losses, asked, share) == expected


def test_better_worse_close_and_missing() -> None:
    rivals = [("hrnn",), ("nais",)]
    best = ask(measured, of_skill(lightgc2n=0.5, hrnn=0.3, nais=0.2), [("lightgc2n",)], rivals)
    assert best.holding == "holds"
    assert best.why.startswith(
        "2 of 2 comparisons clearly for it. Least in favour: MRR@20 of lightgc2n is 20.00 points"
    )
    worse = ask(measured, of_skill(lightgc2n=0.3, hrnn=0.5, nais=0.2), [("lightgc2n",)], rivals)
    assert worse.holding == "does not hold"
    assert "20.00 points below hrnn on E (95 %: −2" in worse.why
    assert ask(measured, of_skill(lightgc2n=0.5, hrnn=0.5, nais=0.2), [("lightgc2n",)], rivals).holding == NOT_SAID
    partly = ask(measured, of_skill(lightgc2n=0.5, hrnn=0.3), [("lightgc2n",)], rivals)
    assert partly.holding == NOT_SAID
    assert "Missing: nais on E." in partly.why
    assert ask(measured, of_skill(hrnn=0.3, nais=0.3), [("lightgc2n",)], rivals).holding == NOT_SAID


def test_a_missing_model_leaves_all_its_comparisons_open() -> None:
    ours = [("lightgc2n",), ("hrnn",)]
    found = ask(measured, of_skill(lightgc2n=0.5, hrnn=0.5, nais=0.2), ours, [("nais",), ("neumf",)], 0.75)
    assert found.holding == NOT_SAID
    assert found.why.startswith("2 of 4 comparisons clearly for it, 2 undecided; 3 are enough.")  # 3/4 of 4


def test_a_model_in_two_forms_must_be_beaten_in_both() -> None:
    psjnet = [("psjnet-1", "psjnet-2")]
    ours = [("lightgc2n",)]
    assert ask(measured, of_skill(lightgc2n=0.5, psjnet_2=0.3), ours, psjnet).holding == "holds"
    assert ask(measured, of_skill(lightgc2n=0.5, psjnet_2=0.3, psjnet_1=0.7), ours, psjnet).holding == "does not hold"


def test_honest_runs_decide_over_published_ones() -> None:
    leaking = {Key("E", "windows", name): [run(name, skill)] for name, skill in (("lightgc2n", 0.6), ("hrnn", 0.4))}
    ours, theirs = [("lightgc2n",)], [("hrnn",)]
    alone = ask(measured, leaking, ours, theirs)
    assert alone.holding == "holds"
    assert alone.why.endswith("No honest run: judged by the published protocol alone.")
    both = ask(measured, {**leaking, **of_skill(lightgc2n=0.2, hrnn=0.4)}, ours, theirs)
    assert both.holding == "does not hold"
    assert both.why.endswith("By the published protocol: 1 of 1 comparison clearly for it.")


def test_the_best_number_of_latent_users() -> None:
    three, one = {1: 0.2, 2: 0.3, 3: 0.5}, {1: 0.5, 2: 0.3, 3: 0.2}
    apart = {**swept("latent_users", three), **swept("latent_users", one, "M")}
    found = ask(setting_claims.differs_by_dataset, apart, "latent_users")
    assert found.holding == "holds"
    assert found.why.startswith("On E α = 3 is best, 20.00 points of MRR@20 before the next (95 %: +1")
    assert "cannot be told from it" not in found.why
    same = {**swept("latent_users", three), **swept("latent_users", three, "M")}
    assert ask(setting_claims.differs_by_dataset, same, "latent_users").holding == "does not hold"
    level = {**swept("latent_users", three), **swept("latent_users", {1: 0.4, 2: 0.4, 3: 0.4}, "M")}
    found = ask(setting_claims.differs_by_dataset, level, "latent_users")
    assert found.holding == NOT_SAID
    assert found.why.endswith("; 2 of the 2 other values cannot be told from it.")
    assert ask(setting_claims.differs_by_dataset, swept("latent_users", three), "latent_users").holding == NOT_SAID


def test_a_sweep_keeps_the_other_settings() -> None:
    joined = {**swept("temperature", {0.2: 0.2, 0.8: 0.5}), **swept("contrast_weight", {0.4: 0.3, 0.6: 0.3})}
    (contest,) = compare(joined)
    assert list(setting_claims.sweep(contest, "temperature")) == [0.2, 0.8]
    # The base itself, 0.8, was run once, as a value of the temperature.
    assert sorted(setting_claims.sweep(contest, "contrast_weight")) == [0.4, 0.6, 0.8]


def test_where_the_best_value_lies() -> None:
    both = ("temperature", "contrast_weight")
    at_08 = {**swept("temperature", {0.2: 0.2, 0.8: 0.5}), **swept("contrast_weight", {0.2: 0.2, 0.4: 0.2})}
    assert ask(setting_claims.best_lies_in, at_08, both, {0.8, 0.9}).holding == "holds"
    at_02 = {**at_08, **swept("contrast_weight", {0.2: 0.8})}
    assert ask(setting_claims.best_lies_in, at_02, both, {0.8, 0.9}).holding == "does not hold"
    level = {**at_08, **swept("contrast_weight", {0.2: 0.5})}
    assert ask(setting_claims.best_lies_in, level, both, {0.8, 0.9}).holding == NOT_SAID
    assert (
        ask(setting_claims.best_lies_in, swept("temperature", {0.2: 0.2, 0.8: 0.5}), both, {0.8, 0.9}).holding
        == NOT_SAID
    )


def test_layers() -> None:
    peak = swept("layers", {1: 0.3, 2: 0.5, 3: 0.4, 4: 0.3})
    assert ask(setting_claims.best_lies_in, peak, ["layers"], {2.0}).holding == "holds"
    assert ask(setting_claims.declines_after, peak, "layers", 2.0).holding == "holds"
    rising = swept("layers", {1: 0.3, 2: 0.4, 3: 0.5, 4: 0.6})
    assert ask(setting_claims.best_lies_in, rising, ["layers"], {2.0}).holding == "does not hold"
    assert ask(setting_claims.declines_after, rising, "layers", 2.0).holding == "does not hold"


def test_the_contrast_pays_only_at_some_values() -> None:
    both = ("temperature", "contrast_weight")
    without = of_skill(lightgc2n_wo_cl=0.4)

    def found(skills: dict[float, float]) -> str:
        sweeps = compare(swept("temperature", skills))
        return setting_claims.helps_only_at_some(sweeps, compare(without), both, "lightgc2n-wo-cl").holding

    assert found({0.2: 0.2, 0.8: 0.6}) == "holds"
    assert found({0.2: 0.5, 0.8: 0.6}) == "does not hold"
    assert found({0.2: 0.4, 0.8: 0.6}) == NOT_SAID
    assert setting_claims.helps_only_at_some([], compare(without), both, "lightgc2n-wo-cl").holding == NOT_SAID


def timed(**seconds: list[float]) -> Results:
    """Runs at equal steps of the data, up to all of it."""
    return {
        Key("E", "last", f"{name} {place}"): [run(name.replace("_", "-"), seconds=time, share=(place + 1) / len(times))]
        for name, times in seconds.items()
        for place, time in enumerate(times)
    }


def test_times_within_five_percent_are_equal() -> None:
    assert cost_claims.span([run(seconds=10.0), run(seconds=20.0)]) == pytest.approx((10 / 1.05, 21.0))
    assert cost_claims.span([run(seconds=10.0), replace(run(seconds=20.0), at_once=4)]) == pytest.approx((5.0, 40.0))
    assert cost_claims.less((0.95, 1.05), (1.06, 1.2)) == 1
    assert cost_claims.less((1.06, 1.2), (0.95, 1.05)) == -1
    assert cost_claims.less((0.95, 1.05), (1.04, 1.2)) == 0
    assert cost_claims.less((3.0, 3.0), (3.0, 3.0)) == -1, "exact numbers that are equal are not less"
    assert ask(cost_claims.faster, timed(lightgc2n=[1, 2], hrnn=[2, 4]), [("hrnn",)]).holding == "holds"
    slower = ask(cost_claims.faster, timed(lightgc2n=[1, 4], hrnn=[2, 2]), [("hrnn",)])
    assert slower.holding == "does not hold"
    assert "2.00 times as long as that of hrnn on E, with 100 % of the data" in slower.why
    assert ask(cost_claims.faster, timed(lightgc2n=[1, 2], hrnn=[2, 2.05]), [("hrnn",)]).holding == NOT_SAID
    assert ask(cost_claims.faster, timed(lightgc2n=[1, 2], hrnn=[2, 4]), [("hrnn",), ("nais",)]).holding == NOT_SAID


def test_costs_are_compared_with_equally_many_latent_users() -> None:
    """By the default numbers 2 s against 3, with one latent user 1 s against 1.5; never 2 against 1.5."""

    def of(seconds: float, parameters: int, model: str, label: str = "") -> list[RunResult]:
        return [replace(run(model, seconds=seconds, parameters=parameters), label=label or model)]

    one = cost_claims.ONE_USER
    rivals = {"da-gcn": of(3, 9, "da-gcn"), f"da-gcn{one}": of(1.5, 5, "da-gcn", f"da-gcn{one}")}
    runs = {"lightgc2n": of(2, 6, "lightgc2n"), f"lightgc2n{one}": of(1, 4, "lightgc2n", f"lightgc2n{one}"), **rivals}
    found = {Key("E", "last", name): seeds for name, seeds in runs.items()}
    assert ask(cost_claims.faster, found, [("da-gcn",)]).why.startswith("2 of 2 comparisons clearly for it")
    assert ask(cost_claims.fewer_parameters, found, [("da-gcn",)]).why.startswith("2 of 2 comparisons clearly for it")
    del found[Key("E", "last", f"lightgc2n{one}")]
    assert ask(cost_claims.faster, found, [("da-gcn",)]).why.startswith("1 of 1 comparison clearly for it")


def test_two_domains_at_once_count_for_each() -> None:
    ours = of_skill(lightgc2n=0.5)  # 10 seconds
    both = {Key("E", "last", "pi-net, two domains"): [run("pi-net", seconds=15.0, domains=2)]}
    found = ask(cost_claims.faster, {**ours, **both}, [("pi-net",)])
    assert found.holding == "does not hold"
    assert "1.33 times as long as that of pi-net (2 domains at once) on E" in found.why  # 10 against 7.5


def test_time_grows_with_a_power_of_the_data() -> None:
    shares = np.arange(1, 6) / 5
    assert ask(cost_claims.linear_time, timed(lightgc2n=list(shares))).holding == "holds"
    squared = ask(cost_claims.linear_time, timed(lightgc2n=list(shares**2)))
    assert squared.holding == "does not hold"
    assert "power 2.00 of the data (95 %: 2.00 to 2.00)" in squared.why
    assert ask(cost_claims.linear_time, timed(lightgc2n=[1.0, 2.0])).holding == NOT_SAID


def test_a_slope_by_hand() -> None:
    # Through (0, 0), (1, 2), (2, 2), (3, 4): slope 6/5 = 1.2, and 0.8 is left over 2 degrees of freedom, spread 5, so
    # the error is sqrt(0.8 / 2 / 5) = 0.283, times 4.303 of Student's t.
    value, low, high = cost_claims.slope([(0, 0), (1, 2), (2, 2), (3, 4)])
    assert value == pytest.approx(1.2)
    assert (high - low) / 2 == pytest.approx(4.303 * 0.2828, rel=1e-3)


def test_the_widths_of_models_whose_parameters_are_compared_are_named() -> None:
    def why(own: int, rival: int) -> str:
        ours = run(parameters=100, embedding_width=own, capsule_width=own)
        pi_net = run("pi-net", parameters=300, width=rival, state_width=0)
        found = {Key("E", "last", "lightgc2n"): [ours], Key("E", "last", "pi-net"): [pi_net]}
        return ask(cost_claims.fewer_parameters, found, [("pi-net",)]).why

    assert why(16, 16) == (
        "1 of 1 comparison clearly for it, every width 16. Least in favour: for each domain served on E, lightgc2n 100 "
        "(100 in all); pi-net 300 (300 in all)."
    )
    assert why(16, 64).startswith("1 of 1 comparison clearly for it, with widths from 16 to 64.")


def test_parameters_count_for_each_domain_served() -> None:
    def found(parameters: int, domains: int) -> str:
        rival = {Key("E", "last", "pi-net"): [run("pi-net", parameters=parameters, domains=domains)]}
        return ask(cost_claims.fewer_parameters, {**of_skill(lightgc2n=0.5), **rival}, [("pi-net",)]).holding

    assert found(150_000, 1) == "holds"  # against 100,000
    assert found(150_000, 2) == "does not hold"  # 75,000 a domain


def test_variants_cost() -> None:
    names = ("lightgc2n-wo-c",)
    assert ask(cost_claims.steadier, timed(lightgc2n=[1, 2], lightgc2n_wo_c=[1, 4]), names).holding == "holds"
    assert ask(cost_claims.steadier, timed(lightgc2n=[1, 4], lightgc2n_wo_c=[1, 2]), names).holding == "does not hold"
    assert ask(cost_claims.steadier, timed(lightgc2n=[1, 4]), names).holding == NOT_SAID
    assert ask(cost_claims.steadier, timed(lightgc2n=[0, 4], lightgc2n_wo_c=[1, 2]), names).holding == NOT_SAID
    full = of_skill(lightgc2n=0.5)
    less = {**full, Key("E", "last", names[0]): [run(names[0], parameters=95_000)]}
    assert ask(cost_claims.little_change, less, names).holding == "holds"
    half = {**full, Key("E", "last", names[0]): [run(names[0], parameters=50_000)]}
    found = ask(cost_claims.little_change, half, names)
    assert found.holding == "does not hold"
    assert "lightgc2n-wo-c on E −50.0 %" in found.why


def test_cost_of_layers() -> None:
    def courses(sizes: list[int], seconds: list[float]) -> Results:
        pairs = enumerate(zip(sizes, seconds, strict=True), start=1)
        return {Key("E", "last", f"L{n}"): [run(parameters=size, seconds=time, layers=n)] for n, (size, time) in pairs}

    even = courses([100, 200, 300], [1.0, 2.0, 3.0])
    assert ask(cost_claims.grows_with_layers, even).holding == "holds"
    assert (
        ask(cost_claims.accelerates_with_layers, even).holding == "does not hold"
    )  # each layer adds as many parameters
    assert ask(cost_claims.accelerates_with_layers, courses([100, 200, 400], [1.0, 2.0, 4.0])).holding == "holds"
    assert ask(cost_claims.grows_with_layers, courses([100, 100, 100], [1.0, 2.0, 3.0])).holding == "does not hold"
    assert ask(cost_claims.grows_with_layers, {}).holding == NOT_SAID


@pytest.mark.parametrize(
    ("agreement", "expected"),
    [((0.7, 0.6, 0.8), "holds"), ((0.1, 0.0, 0.2), "does not hold"), ((0.5, 0.4, 0.6), NOT_SAID), (None, NOT_SAID)],
)
def test_latent_users_and_people(agreement: tuple[float, float, float] | None, expected: str) -> None:
    people = [] if agreement is None else [Agreement("households", *agreement)]
    found = {verdict.claim: verdict.ours for verdict in judge({}, people)}
    assert found["Each subspace base stands for one latent user of an account."] == expected


def test_the_example_says_what_was_put_into_it() -> None:
    said = verdicts(results())
    assert said["Linear attention helps"].ours == "holds"
    assert said["The contrastive loss helps"].ours == NOT_SAID
    assert said["Its cost grows linearly with the data."].ours == "holds"
    assert said["It needs fewer parameters than the other shared-account models."].ours == "does not hold"
    assert len(VARIANTS) == 6
