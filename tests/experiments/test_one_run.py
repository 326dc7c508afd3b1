"""A plan whose runs are given to a runner one by one, as on a cluster; this runner is the local one."""

import json
from pathlib import Path

from lightgc2n.experiments.plan_runner import train_plan
from lightgc2n.experiments.save_results import read_results
from lightgc2n.experiments.subprocesses import run_children
from lightgc2n.files.atomic_writes import claim_folder
from lightgc2n.paper.experiment_runner import PLAN, Pace, State, run_plans
from lightgc2n.synthetic.households import HouseholdConfig, generate

SAME = ("identity", "metrics", "targets", "domains", "questions", "parameters", "epochs", "validation")


def plan_in(folder: Path) -> Path:
    generate(HouseholdConfig(accounts=50), 0, folder / "homes")
    plan = folder / "one" / PLAN
    claim_folder(plan.parent, "an experiment")
    plan.write_text('data = "../homes"\nmodel = ["sasrec", "popularity"]\n[training]\nepochs = 1\n')
    return plan


def test_a_runner_makes_the_runs_of_the_plan(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    names = ["homes-sasrec-seed0", "homes-popularity-seed0"]
    assert train_plan(plan, tmp_path / "there", runner=run_children).finished == names
    assert train_plan(plan, tmp_path / "here").finished == names
    for name in names:
        here, there = read_results(tmp_path / "here" / name), read_results(tmp_path / "there" / name)
        assert here is not None
        assert there is not None
        assert {part: here[part] for part in SAME} == {part: there[part] for part in SAME}
        described = (json.loads((tmp_path / side / name / "run.json").read_text()) for side in ("here", "there"))
        first, second = ({**one, "threads": 0} for one in described)
        assert first == second


def test_an_experiment_gives_its_runs_to_the_runner(tmp_path: Path) -> None:
    plan_in(tmp_path)
    state = State()
    run_plans(["one"], tmp_path, state, Pace(runner=run_children))
    assert (state.left, state.failed) == ([], [])
    assert read_results(tmp_path / "one" / "homes-sasrec-seed0") is not None
