"""What a verdict compares: widths, latent users, runs that a budget ended, and what a correction leaves open."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightgc2n.errors import DataError
from lightgc2n.paper import claims, earlier, edge, step_times
from lightgc2n.paper.document import Verdict
from lightgc2n.paper.edge import Bundle
from lightgc2n.paper.experiment_results import with_records
from lightgc2n.paper.findings import comparisons, corrected_text, measured
from lightgc2n.paper.run_records import read_records, write_records
from lightgc2n.paper.step_times import StepTimes, read_step_times
from tests.paper.example import Key, grouped, run
from tests.paper.test_claims import of_skill

OURS = [("lightgc2n",)]


def test_a_run_that_its_budget_ended_judges_nothing() -> None:
    cut = replace(run("pi-net", 0.9), ended_by="budget")
    runs = {Key("E", "last", "lightgc2n"): [run()], Key("E", "last", "pi-net"): [cut]}
    alone = measured(comparisons(grouped(runs)), OURS, [("pi-net",)])
    assert (alone.holding, alone.why) == ("cannot be told", "Every run ended by its budget: pi-net on E.")
    runs[Key("E", "last", "hrnn")] = [run("hrnn", 0.2)]
    both = measured(comparisons(grouped(runs)), OURS, [("pi-net",), ("hrnn",)])
    assert both.holding == "cannot be told"
    assert both.why.startswith("1 of 2 comparisons clearly for it, 1 undecided.")
    assert "Ended by their budget, so they judge nothing: pi-net on E." in both.why


def test_a_verdict_says_which_widths_and_seeds_it_compares() -> None:
    ours, other = run(embedding_width=16, capsule_width=16), run("hrnn", 0.2, width=64)
    runs = {Key("E", "last", "lightgc2n"): [ours, replace(ours, seed=1)], Key("E", "last", "hrnn"): [other]}
    found = measured(comparisons(grouped(runs)), OURS, [("hrnn",)])
    assert found.why.endswith("Compared on E; widths 16 to 64, each model its own; 1 to 2 seeds.")


def test_what_holms_correction_leaves_open_is_said() -> None:
    assert corrected_text(0, 4) == ""
    assert corrected_text(2, 4) == (
        "Holm's correction over 4 comparisons leaves 2 of them, whose own 95 % intervals exclude 0, undecided."
    )
    # Few accounts prefer the model: one comparison alone is clear, forty of the same are not.
    rivals = [(f"rival-{place}",) for place in range(40)]
    runs = {Key("E", "last", "lightgc2n"): [run(skill=0.5)]}
    runs |= {Key("E", "last", name): [run(name, 0.485)] for (name,) in rivals}  # six accounts of 400: p about 0.03
    found = measured(comparisons(grouped(runs)), OURS, rivals)
    assert found.holding == "cannot be told"
    assert "Holm's correction over 40 comparisons leaves 40 of them" in found.why


def test_parts_are_judged_with_three_latent_users_and_one_is_named() -> None:
    def of(users: int, skill: float, model: str) -> dict[Key, list[Any]]:
        return {Key("E", "last", f"{model} {users}"): [run(model, skill, latent_users=users)]}

    runs = {**of(3, 0.5, "lightgc2n"), **of(3, 0.3, "lightgc2n-wo-c")}
    runs |= {**of(1, 0.3, "lightgc2n"), **of(1, 0.5, "lightgc2n-wo-c")}
    verdicts = {one.claim.split(":")[0]: one for one in claims.judge({"ablation": grouped(runs)})}
    helps = verdicts["The capsule convolution helps"]
    assert helps.ours == "holds"
    assert helps.ours_why.startswith("With α = 3: holds. 1 of 1 comparison clearly for it.")
    assert "With α = 1: does not hold. 0 of 1 comparison clearly for it" in helps.ours_why


def test_rankings_are_judged_at_width_16_and_name_the_models_own() -> None:
    results = {
        "table1-16": grouped(of_skill(lightgc2n=0.5, pi_net=0.3)),
        "table1": grouped(of_skill(lightgc2n=0.3, pi_net=0.5)),
    }
    verdicts = {one.claim: one for one in claims.judge(results)}
    shared = verdicts["It is more accurate than the other shared-account models."]
    assert shared.ours == "cannot be told"  # three of the four were not run
    assert "With each model's own settings (Table 1): does not hold." in shared.ours_why


def times(model: str, milliseconds: float, label: str = "", share: float = 1.0, **settings: int) -> dict[str, Any]:
    more = {"steps_per_epoch": 54, "parameters": round(1000 * milliseconds), "peak_mb": None, "checksum": "c"}
    rows = {"data": "E", "model": model, "label": label or model, "share": share, "engineering": "none"}
    return {**rows, "settings": settings, "milliseconds": [milliseconds, milliseconds * 1.01], **more}


def recorded(folder: Path, *rows: Mapping[str, Any]) -> list[StepTimes]:
    (folder / "steps").mkdir(exist_ok=True)
    head = {"device": "cpu", "command": "python benchmarks/steps.py", "commit": "abc"}
    (folder / "steps" / "cpu.json").write_text(json.dumps({**head, "rows": rows}))
    return read_step_times(folder)


def test_costs_are_judged_by_times_of_steps(tmp_path: Path) -> None:
    rivals = [times(name, 20.0) for name in ("psjnet-2", "da-gcn", "tida-gcn")]
    layers = [times("lightgc2n", 10.0 * n, f"lightgc2n, {n} layers", layers=n) for n in (1, 3)]
    rows = recorded(tmp_path, times("lightgc2n", 10.0), times("pi-net", 5.0), *rivals, *layers)
    verdicts = {one.claim: one for one in claims.judge({}, steps=rows)}
    faster = verdicts["LightGC²N trains faster than the other shared-account models, at every share of the data."]
    assert faster.ours == "does not hold"
    assert faster.ours_why.startswith("3 of 4 comparisons clearly for it, 1 clearly against it.")
    assert "2.00 times as long as that of pi-net on E on one core of a CPU" in faster.ours_why
    fewer = verdicts["It needs fewer parameters than the other shared-account models."]
    assert fewer.ours == "does not hold"
    table = step_times.section(rows).tables[0]
    assert [row[0].text for row in table.rows][:2] == ["lightgc2n", "pi-net"]
    assert [cell.text for cell in table.rows[1]] == ["pi-net", "5,000", "5.03", "0.50", "-"]


def test_growth_with_the_data_is_judged_by_shares_that_were_timed(tmp_path: Path) -> None:
    def verdicts(power: float) -> dict[str, str]:
        shares = (0.2, 0.4, 0.6, 0.8, 1.0)
        model = [times("lightgc2n", 10 * share**power, share=share) for share in shares]
        variants = [times(f"lightgc2n-wo-{part}", 10.0, share=share) for part in "csa" for share in (0.2, 1.0)]
        rows = recorded(tmp_path, *model, *variants, times("lightgc2n", 99.0, "lightgc2n, 5 layers", layers=5))
        return {one.claim: one.ours for one in claims.judge({}, steps=rows)}

    growth = "Its cost grows linearly with the data."
    rivals = "its variants without capsules, alignment or all"
    steadier = f"Its training time grows less with the data than that of {rivals}."
    # `times` has 54 steps an epoch at every share, so an epoch grows as a step does.
    assert verdicts(1.0)[growth] == "holds"
    assert verdicts(2.0)[growth] == "does not hold"
    assert verdicts(-1.0)[steadier] == "holds"  # steps of the variants take equally long at both shares
    assert verdicts(1.0)[steadier] == "does not hold"


def test_a_record_of_steps_that_is_not_one_is_named(tmp_path: Path) -> None:
    recorded(tmp_path)
    (tmp_path / "steps" / "cpu.json").write_text("{}")
    with pytest.raises(DataError, match=r"cpu\.json: not times of steps: KeyError\('device'\)"):
        read_step_times(tmp_path)


def bundle(**more: Any) -> Bundle:
    given = {
        "data": "E",
        "model": "lightgc2n",
        "form": "int8",
        "width": 16,
        "epochs": 60,
        "device_mb": 0.4,
        "milliseconds": 0.3,
    }
    scores = {"mrr": 11.0, "of_run": 11.0, "loss_low": -0.001, "loss_high": 0.002, "command": "", "commit": "abc"}
    return Bundle(**(given | scores | more))


def test_whether_a_bundle_suits_a_device() -> None:
    assert edge.judged([]).holding == "cannot be told"
    assert edge.judged([bundle()]).holding == "holds"
    assert edge.judged([bundle(device_mb=11.0)]).holding == "does not hold"
    assert edge.judged([bundle(mrr=7.0, loss_low=0.3, loss_high=0.4)]).holding == "does not hold"
    assert edge.judged([bundle(loss_high=0.02)]).holding == "cannot be told"
    assert edge.judged([bundle(device_mb=11.0), bundle(form="float")]).holding == "holds"  # one form suffices


def test_records_give_the_groups_they_were_made_of(tmp_path: Path) -> None:
    ranks = np.array([1.0, 2.5, 20.0, 20.5, 127.0, 500.0, np.inf])
    first = replace(run(seed=0), rank=ranks, owner=np.array([0, 0, 1, 4, 5, 6, 7]), stamps=("leaks",), label="a")
    first = replace(first, dataset_folder="E", epoch_seconds=(1.0, 2.0), folder=None)
    groups = grouped({Key("E", "last", "a"): [first, replace(first, seed=1)], Key("E", "last", "b"): [first]})
    write_records(groups, tmp_path)
    read = read_records(tmp_path)
    assert [(one.label, len(one.runs)) for one in read] == [("a", 2), ("b", 1)]
    for before, after in zip(groups, read, strict=True):
        assert after.estimates == before.estimates
        assert after.first.owner.tolist() == before.first.owner.tolist()
        assert (after.first.stamps, after.first.epoch_seconds) == (("leaks",), (1.0, 2.0))
        assert after.first.rank[:5].tolist() == ranks[:5].tolist()


def test_an_earlier_report_is_kept_and_its_verdicts_stand_beside_the_present_ones(tmp_path: Path) -> None:
    folder = tmp_path / "earlier"
    folder.mkdir()
    (folder / "table1-E.csv").write_text("model,MRR@20,MRR@20 low,MRR@20 high,p\nlightgc2n,11.456,11.0,12.0,best\n")
    table = {"caption": "E, in %", "command": "lightgc2n experiment table1", "notes": ["One seed."]}
    verdict = {"claim": "It is fast.", "ours": "holds", "changed": "Only one model had captured steps."}
    (folder / "earlier.json").write_text(json.dumps({"tables": {"table1-E": table}, "verdicts": [verdict]}))
    kept = earlier.read_earlier(tmp_path)
    assert kept is not None
    (shown,) = earlier.section(kept).tables
    assert shown.columns == ("model", "MRR@20", "p")
    assert [(cell.text, cell.low) for cell in shown.rows[0]] == [("lightgc2n", None), ("11.46", 11.0), ("best", None)]
    assert shown.notes == (earlier.WHY, "One seed.")
    now = Verdict("It is fast.", "RQ1", "holds", "", "does not hold", "")
    (changes,) = earlier.section_of_changes(kept, [now, replace(now, claim="It is light.")]).tables
    assert [[cell.text for cell in row] for row in changes.rows] == [
        ["It is fast.", "holds", "does not hold", "Only one model had captured steps."],
        ["It is light.", "not judged", "does not hold", "New among the judged claims."],
    ]
    assert earlier.read_earlier(folder) is None


def test_new_runs_are_added_to_records_seed_by_seed(tmp_path: Path) -> None:
    """Other seeds of the same setting stay; runs of other settings are replaced; other models stay."""
    old = [replace(run(seed=seed), label="a") for seed in (0, 1)]
    others = {Key("E", "last", "b"): [replace(run("hrnn"), label="b")]}
    kept = grouped({Key("E", "last", "a"): old, **others})
    new = replace(run(seed=2), label="a")
    assert [one.seed for one in with_records(grouped({Key("E", "last", "a"): [new]}), kept)[0].runs] == [0, 1, 2]
    changed = replace(run(seed=2, latent_users=7), label="a")
    both = with_records(grouped({Key("E", "last", "a"): [changed]}), kept)
    assert [(one.label, [each.seed for each in one.runs]) for one in both] == [("a", [2]), ("b", [0])]
