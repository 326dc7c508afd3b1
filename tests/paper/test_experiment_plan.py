"""What an experiment is asked for becomes a plan that says everything once."""

from dataclasses import replace
from pathlib import Path

import pytest

from lightgc2n import zoo
from lightgc2n.errors import DataError, SettingError
from lightgc2n.experiments.plans import read_plan
from lightgc2n.models.lightgc2n.ablations import VARIANTS
from lightgc2n.paper.catalogue import EXPERIMENTS, choose_experiments
from lightgc2n.paper.experiment_plan import Entry, Setup, Source, plan_lines, settings_file
from lightgc2n.paper.leak import ladders
from lightgc2n.training.runs import RunPlan

E = Source(Path("prepared/E"), "logs", ("all",), False)
WINDOWS = Source(Path("prepared/Hvideo_E"), "windows", ("all",), False)
BOTH = Source(Path("prepared/both"), "logs", ("E", "V"), True)


def planned(name: str, setup: Setup, folder: Path) -> dict[str, RunPlan]:
    """The runs of an experiment, as they are read back from its plan."""
    data = {source.name: f"../data/{source.name}" for source in setup.sources}
    study = EXPERIMENTS[name]
    text = "\n".join(plan_lines(setup, study.runs(setup), study.seeds, study.epochs, data))
    (folder / "plan.toml").write_text(text, encoding="utf-8")
    return read_plan(folder / "plan.toml")


def test_table1_has_every_model_but_no_ablation(tmp_path: Path) -> None:
    runs = planned("table1", Setup((E,)), tmp_path)
    models = [run.model for run in runs.values()]
    assert set(zoo.ZOO) - set(models) >= set(VARIANTS) - {"lightgc2n"}
    assert {"lightgc2n", "lightgc2n-plus", "neumf", "tgsrec", "tida-gcn", "popularity"} <= set(models)
    assert all(not name.startswith(("lightgc2n-wo", "lightgc2n-plus-")) for name in models)
    assert sum(run.model == "sasrec" for run in runs.values()) == 3
    assert sum(run.model == "markov" for run in runs.values()) == 1  # a simple baseline uses no random numbers
    assert {run.split.protocol for run in runs.values()} == {"last"}


def test_trending_runs_where_there_are_times_or_where_it_is_named(tmp_path: Path) -> None:
    timed = replace(E, timed=True)
    for source, models, there in ((E, "simple", False), (timed, "floors", True), (E, "trending,markov", True)):
        runs = planned("table1", Setup((source,), models=models), tmp_path)
        assert ("trending" in [run.model for run in runs.values()]) == there


def test_models_for_two_domains_run_on_both_at_once_and_on_each(tmp_path: Path) -> None:
    runs = planned("table1", Setup((BOTH,), models="recency,pi-net", seeds=1), tmp_path)
    asked = {name: (run.domain, run.split.ask) for name, run in runs.items()}
    assert asked == {
        "both-E-recency-seed0": ("E", "auto"),
        "both-E-pi-net-seed0": ("E", "auto"),
        "both-V-recency-seed0": ("V", "auto"),
        "both-V-pi-net-seed0": ("V", "auto"),
        "both-pi-net-seed0": ("", "each-domain"),
    }


def test_an_ablation_takes_the_settings_of_its_model(tmp_path: Path) -> None:
    config = tmp_path / "settings"
    (config / "E").mkdir(parents=True)
    (config / "E" / "lightgc2n.toml").write_text("[lightgc2n]\nlayers = 3\n[training]\nclip = 1.0\nepochs = 7\n")
    runs = planned("ablation", Setup((E, WINDOWS), config=config, seeds=2), tmp_path)
    tuned, plus, other = (
        runs[f"{name}-seed1"] for name in ("E-lightgc2n-wo-c", "E-lightgc2n-plus", "Hvideo_E-lightgc2n")
    )
    assert (tuned.settings, tuned.training.clip, tuned.training.epochs) == ({"layers": 3, "latent_users": 3}, 1.0, 7)
    assert (plus.settings, plus.training.epochs, other.settings) == ({}, 150, {"latent_users": 3})
    assert other.split.protocol == "windows"
    assert settings_file(config, Entry(E, "lightgc2n-wo-c")) == config / "E" / "lightgc2n.toml"
    assert settings_file(config, Entry(E, "sasrec")) is None


def test_an_ablation_has_three_latent_users_and_one(tmp_path: Path) -> None:
    runs = planned("ablation", Setup((E,), seeds=1), tmp_path)
    users = {name: run.settings.get("latent_users") for name, run in runs.items()}
    assert (users["E-lightgc2n-wo-s-seed0"], users["E-lightgc2n-wo-s-alpha-1-seed0"]) == (3, 1)
    assert "E-lightgc2n-wo-a-alpha-1-seed0" not in users  # it has no latent users
    assert list(users.values()).count(1) == list(users.values()).count(3) - 1 == 6


def test_every_width_is_that_of_the_paper(tmp_path: Path) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "pi-net.toml").write_text("[pi-net]\nwidth = 64\nmembers = 2\n")
    models = "lightgc2n,pi-net,hrnn,markov"
    runs = planned("table1-16", Setup((E,), seeds=1, models=models, config=tmp_path / "settings"), tmp_path)
    settings = {name: run.settings for name, run in runs.items()}
    assert settings == {
        "E-lightgc2n-seed0": {"embedding_width": 16, "capsule_width": 16},
        "E-pi-net-seed0": {"width": 16, "members": 2, "state_width": 16},
        "E-hrnn-seed0": {"width": 16, "session_width": 16, "user_width": 16},
        "E-markov-seed0": {},
    }


def test_settings_are_inherited_from_the_folder_above(tmp_path: Path) -> None:
    (tmp_path / "E").mkdir()
    (tmp_path / "E" / "lightgc2n.toml").write_text("[lightgc2n]\n")
    (tmp_path / "sasrec.toml").write_text("[sasrec]\n")
    assert settings_file(tmp_path, Entry(E, "sasrec")) == tmp_path / "sasrec.toml"


def test_options_override_files_and_a_sweep_overrides_both(tmp_path: Path) -> None:
    (tmp_path / "lightgc2n.toml").write_text("[lightgc2n]\nlatent_users = 2\nlayers = 3\n[training]\nepochs = 7\n")
    changes = {"lightgc2n": {"layers": 1, "latent_users": 4}, "split": {"validation": False}}
    runs = planned("hyperparameters", Setup((E,), config=tmp_path, budget=9, changes=changes), tmp_path)
    assert len(runs) == 5 + 10 + 10 + 1
    assert runs["E-alpha-5-seed0"].settings == {"latent_users": 5, "layers": 1}
    assert runs["E-beta-0.3-seed0"].settings == {"latent_users": 4, "layers": 1, "temperature": 0.3}
    assert runs["E-gamma-1.0-seed0"].settings["contrast_weight"] == 1.0
    assert {run.training.epochs for run in runs.values()} == {9}
    assert not any(run.split.validation for run in runs.values())


def test_layers_go_from_one_to_five(tmp_path: Path) -> None:
    runs = planned("layers", Setup((E,)), tmp_path)
    assert [run.settings.get("layers") for run in runs.values()] == [1, 2, 3, 4, 5, None]


def test_efficiency_turns_the_share_of_the_data_and_counts_epochs(tmp_path: Path) -> None:
    runs = planned("efficiency", Setup((BOTH,), models="lightgc2n,da-gcn"), tmp_path)
    assert len(runs) == (2 + 2) * 5 + 5
    run = runs["both-V-lightgc2n-share-0.4-seed0"]
    assert (run.split.training_share, run.training.epochs, run.training.evaluate_every) == (0.4, 6, 6)
    assert runs["both-da-gcn-share-1.0-seed0"].split.ask == "each-domain"
    variants = planned("ablation-efficiency", Setup((E,)), tmp_path)
    assert {run.model for run in variants.values()} >= {"lightgc2n-wo-c", "lightgc2n-wo-s", "lightgc2n-wo-a"}


def test_the_ladder_has_four_steps(tmp_path: Path) -> None:
    runs = planned("leak", Setup((WINDOWS, E), models="markov"), tmp_path)
    steps = {name: (run.split.protocol, run.split.target_in_input, run.split.copies) for name, run in runs.items()}
    assert steps == {
        "Hvideo_E-markov-target-in-input-seed0": ("windows", True, True),
        "Hvideo_E-markov-windows-seed0": ("windows", False, True),
        "Hvideo_E-markov-windows-without-copies-seed0": ("windows", False, False),
        "E-markov-seed0": ("last", False, True),
    }


def test_windows_and_logs_are_paired_in_their_order() -> None:
    other = Source(Path("prepared/Hvideo_V"), "windows", ("all",), False)
    found = ladders((WINDOWS, other, E))
    assert [(ladder.windows, ladder.logs) for ladder in found] == [(WINDOWS, E), (other, None)]
    with pytest.raises(DataError, match="leak: needs random windows"):
        ladders((E,))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_names_of_runs_are_those_of_the_plan(name: str, tmp_path: Path) -> None:
    """By them the report knows which settings file a run had, and which runs are missing."""
    setup = Setup((WINDOWS, E, BOTH), seeds=1)
    entries = [f"{entry.name}-seed0" for entry in EXPERIMENTS[name].runs(setup)]
    assert (list(planned(name, setup, tmp_path)) if entries else []) == entries


def test_nonsense_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingError, match="Did you mean 'table1'"):
        choose_experiments("tabel1")
    with pytest.raises(SettingError, match="Did you mean 'windows'"):
        Setup((E,), protocol="window")
    with pytest.raises(SettingError, match="Did you mean 'lightgc2n'"):
        Setup((E,), changes={"lightgc2m": {}})
    assert choose_experiments("all") == list(EXPERIMENTS)
