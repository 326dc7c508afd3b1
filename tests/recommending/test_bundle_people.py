"""A bundle finds the people that its run finds, with numpy alone, and makes the same lists for them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lightgc2n.errors import DataError, SettingError
from lightgc2n.export.onnx_builder import as_bytes
from lightgc2n.export.write_bundle import ExportOptions, export_run
from lightgc2n.people import count_training
from lightgc2n.recommending.forget_bundle import forget_in_bundle
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.load_run import load_run as load
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.results import AccountPeople
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_run
from lightgc2n.training.runs import RunPlan
from tests.cli.test_commands import run
from tests.recommending.test_bundle import assert_same, lists_from
from tests.recommending.test_bundle_files import refuse, sign

MODEL = "lightgc2n"


class Street(NamedTuple):
    """A run on households whose number of people can be told, and its bundles."""

    run: Path
    bundle: Path
    bytes: Path
    torch: Recommender
    onnx: Recommender


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> Street:
    folder = tmp_path_factory.mktemp("street")
    generate(HouseholdConfig(accounts=150), seed=0, out=folder / "data")
    few = TrainingConfig(epochs=1, batch_size=64, learning_rate=0.01)
    train_run(RunPlan(folder / "data", MODEL, training=few), folder / "run")
    with pytest.MonkeyPatch.context() as patch:  # how well the count is learned is not the question
        patch.setattr(count_training, "MERGES", 100)
        patch.setattr(count_training, "TRIALS", 30)
        for name, options in (("bundle", ExportOptions()), ("bytes", ExportOptions(int8=True))):
            export_run(folder / "run", folder / name, options)
    made = folder / "run", folder / "bundle", folder / "bytes"
    return Street(*made, load(made[0]), load_bundle(made[1]))


@pytest.fixture(scope="module")
def shared(street: Street) -> str:
    """An account of several people, who are found in its history alone too."""
    for name in street.onnx.dataset.accounts:
        if street.onnx.people(name, k=1).count > 1 < street.onnx.people(None, *timed_log(street.onnx, name), k=1).count:
            return name
    raise AssertionError("nobody shares an account")


def assert_same_people(found: AccountPeople, wanted: AccountPeople) -> None:
    for name in ("account_id", "count", "confidence", "chances", "events"):
        assert getattr(found, name) == getattr(wanted, name), name
    for one, other in zip(found.people, wanted.people, strict=True):
        assert (one.name, one.events, one.share, one.likes, one.active) == (
            other.name, other.events, other.share, other.likes, other.active
        )  # fmt: skip
        assert_same(one.next, other.next)
    assert_same(found.whole, wanted.whole)
    if wanted.together is None:
        assert found.together is None
    else:
        assert found.together is not None
        assert_same(found.together, wanted.together)


def timed_log(onnx: Recommender, account: str) -> tuple[list[str], list[str]]:
    """Items and times, to the second."""
    place = onnx.dataset.accounts.index(account)
    part = slice(*onnx.dataset.offsets[place : place + 2])
    assert onnx.dataset.times is not None
    times = onnx.dataset.times[part].astype("datetime64[us]").astype("datetime64[s]")
    return [onnx.dataset.items[item] for item in onnx.dataset.events[part]], [str(time) for time in times]


def asked_ways(onnx: Recommender, account: str) -> Iterator[tuple[object, ...]]:
    items, times = timed_log(onnx, account)
    yield (account,)
    yield None, items, times
    yield account, items[:-3], times[:-3]
    yield None, ["?", *items], [times[0], *times]
    yield "somebody new", items[:1], times[:1]


def test_the_people_of_the_run(street: Street, shared: str) -> None:
    for account in street.onnx.dataset.accounts[::8]:
        assert_same_people(street.onnx.people(account, k=5), street.torch.people(account, k=5))
    for asked in asked_ways(street.onnx, shared):
        found, wanted = (who.people(*asked, k=4, exclude_seen=True) for who in (street.onnx, street.torch))  # type: ignore[arg-type]
        assert_same_people(found, wanted)


def test_a_list_for_one_person_and_for_all(street: Street, shared: str) -> None:
    for asked in asked_ways(street.onnx, shared):
        account, history, times = (*asked, None, None)[:3]
        people = street.onnx.people(account, history, times, k=6)  # type: ignore[arg-type]
        wishes = [({"person": one.name}, one.next) for one in people.people]
        wishes.append(({"together": True}, people.together or people.whole))
        for wish, wanted in wishes:
            given = {"account": account, "history": history, "times": times, "k": 6, **wish}
            single, question = street.onnx.recommend(**given), street.onnx.prepare(**given)  # type: ignore[arg-type]
            assert [one.item_id for one in single] == [one.item_id for one in wanted]
            plain = street.onnx.prepare(shared, k=6)
            first, answered, last = street.onnx.answer([plain, question, plain])
            for one, other in ((answered, single), (first, street.onnx.recommend(shared, k=6)), (last, first)):
                assert_same(one, other)
            assert_same(street.torch.recommend(**given), single)  # type: ignore[arg-type]


def test_wishes_hold_for_lists_of_people_too(street: Street, shared: str) -> None:
    some, denied = list(street.onnx.dataset.items[::3]), list(street.onnx.dataset.items[:300])
    for wish in ({"together": True}, {"person": "B"}):
        found = street.onnx.recommend(shared, allow=some, deny=denied, k=9, **wish)  # type: ignore[arg-type]
        assert len(found) == 9
        assert {one.item_id for one in found} <= {*some} - {*denied}
        assert_same(found, street.torch.recommend(shared, allow=some, deny=denied, k=9, **wish))  # type: ignore[arg-type]


def test_what_is_refused(street: Street, shared: str) -> None:
    items, times = timed_log(street.onnx, shared)
    letters = ", ".join("ABCDE"[: street.onnx.people(shared, k=1).count])
    for who in (street.onnx, street.torch):
        with pytest.raises(DataError, match=f"person 'Z' is not among those found, who are {letters}"):
            who.recommend(shared, person="Z")
        with pytest.raises(SettingError, match=r"for one person .* or for all"):
            who.recommend(shared, person="A", together=True)
        with pytest.raises(DataError, match="a time for each event"):
            who.people(history=items)
        with pytest.raises(DataError, match="a time for each event, oldest first"):
            who.people(history=items, times=times[::-1])
        with pytest.raises(SettingError, match="times: 2 for 3 events"):
            who.people(history=items[:3], times=times[:2])
        with pytest.raises(SettingError, match="times belong to a history"):
            who.people(shared, times=times)
        with pytest.raises(DataError, match="the history is empty, so no people can be estimated"):
            who.people(history=["?"], times=times[:1])


def test_a_phone_finds_people_too(street: Street, shared: str, tmp_path: Path) -> None:
    shutil.copytree(street.bundle, tmp_path / "phone", ignore=shutil.ignore_patterns("server"))
    alone = load_bundle(tmp_path / "phone")
    asked = None, *timed_log(street.onnx, shared)
    assert_same_people(alone.people(*asked), street.onnx.people(*asked))
    stored = load_file(tmp_path / "phone" / "people" / "finder.safetensors")
    accounts = len(street.onnx.dataset.accounts)
    assert not [name for name, array in stored.items() if accounts in array.shape], "nothing has a row for an account"
    assert {len(array) for name, array in stored.items() if name.startswith("tables.")} == {1}


def test_four_bits_find_nearly_the_same_people(street: Street) -> None:
    """Few accounts teach a count that is often decided by little: chances stay close, and so do most counts."""
    rounded, accounts = load_bundle(street.bytes), street.onnx.dataset.accounts[::3]
    pairs = [(rounded.people(account, k=1), street.onnx.people(account, k=1)) for account in accounts]
    assert np.mean([np.abs(np.subtract(found.chances, wanted.chances)) for found, wanted in pairs]) < 0.05
    same = [(found, wanted) for found, wanted in pairs if found.count == wanted.count]
    assert len(same) > 0.7 * len(accounts)
    whose = [
        (one.person, other.person) for pair in same for one, other in zip(*(who.events for who in pair), strict=True)
    ]
    assert np.mean([one == other for one, other in whose]) > 0.9
    for name in ("people/finder.safetensors", "server/people.safetensors"):
        whole, small = ((folder / name).stat().st_size for folder in (street.bundle, street.bytes))
        assert small < 0.3 * whole


def test_people_may_be_left_out(street: Street, tmp_path: Path) -> None:
    export_run(street.run, tmp_path / "bundle", ExportOptions(people=False))
    assert not (tmp_path / "bundle" / "people").exists()
    assert not (tmp_path / "bundle" / "server" / "people.safetensors").exists()
    bundle = load_bundle(tmp_path / "bundle")
    assert (bundle.finds_people, street.onnx.finds_people) == (False, True)
    with pytest.raises(SettingError, match=r"cannot find people: .* lightgc2n\.load\(RUN\)\.export\(BUNDLE\)\."):
        bundle.people(bundle.dataset.accounts[0])
    done = run("recommend", tmp_path / "bundle", "--account", bundle.dataset.accounts[0], "--together")
    assert (done.returncode, "cannot find people" in done.stderr) == (2, True)


def as_schema_2(bundle: Path, whole: Path) -> None:
    """Makes a bundle of bytes what it was in schema 2: the vectors of people were bytes, with a scale for each row."""
    for name in ("people/finder.safetensors", "server/people.safetensors"):
        vectors = load_file(whole / name)["tables.vectors"]
        rounded, scales = as_bytes(vectors.reshape(-1, vectors.shape[2]))
        older = {
            "tables.vectors": rounded.reshape(vectors.shape),
            "tables.scales": scales.reshape(vectors.shape[:2]).astype(np.float32),
        }
        save_file(load_file(bundle / name) | older, bundle / name)
    config = json.loads((bundle / "config.json").read_text())
    (bundle / "config.json").write_text(json.dumps(config | {"schema": 2}))
    sign(bundle)


def test_the_previous_schema_is_read(street: Street, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(street.bytes, tmp_path / "bundle"))
    as_schema_2(bundle, street.bundle)
    old, new, account = load_bundle(bundle), load_bundle(street.bytes), street.onnx.dataset.accounts[4]
    assert old.recommend(account) == new.recommend(account)
    assert_same(old.similar(old.dataset.items[0]), new.similar(old.dataset.items[0]))
    found, wanted = (one.finder.learned.tables.vectors for one in (old, street.onnx))
    np.testing.assert_allclose(found, wanted, atol=0.005)
    assert old.people(account, k=1).count == street.onnx.people(account, k=1).count


def test_what_was_tampered_with_is_refused(street: Street, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = Path(shutil.copytree(street.bundle, tmp_path / "bundle"))
    for path, name, change in (
        ("people/finder.safetensors", "tables.vectors", lambda array: array[:, :-1]),
        ("people/finder.safetensors", "tables.first", lambda array: array[:, :-1]),
        ("people/finder.safetensors", "contrast.inward", lambda array: array[:-1]),
        ("people/finder.safetensors", "count.weights", lambda array: array[:-1]),
        ("people/finder.safetensors", "traits.centre", lambda array: array[:-1]),
        ("people/finder.safetensors", "habits.hours", lambda array: array - 800),  # no type comes at any hour
        ("people/finder.safetensors", "habits.weights", lambda array: array[:-1]),
        ("server/people.safetensors", "habits.together", lambda array: array[:, :-1]),
        ("server/people.safetensors", "fold", lambda array: array[:-1]),
        ("server/people.safetensors", "fold", lambda array: array + 4),
        ("server/people.safetensors", "tables.events", lambda array: array[:-1]),
        ("server/histories.safetensors", "times", lambda array: array[:-1]),
    ):
        whole, arrays = (bundle / path).read_bytes(), load_file(bundle / path)
        arrays[name] = np.ascontiguousarray(change(arrays[name]))
        save_file(arrays, bundle / path)
        assert "checksum differs" in refuse(bundle)
        sign(bundle)
        assert f"{bundle / path}: {name}: expected" in refuse(bundle)
        (bundle / path).write_bytes(whole)
    sign(bundle)
    load_bundle(bundle)
    facts = json.loads((bundle / "people" / "finder.json").read_text())
    facts["constants"] |= {"steps": 21, "doubt": 0.3}
    (bundle / "people" / "finder.json").write_text(json.dumps(facts))
    sign(bundle)
    capsys.readouterr()
    load_bundle(bundle)
    assert "constants.doubt, steps: changed since the export" in capsys.readouterr().err
    (bundle / "people" / "finder.json").write_text('{"gap": 1}')
    sign(bundle)
    refuse(bundle, "finder.json: prior: expected a value, found nothing")


def test_any_weights_that_are_learned_can_be_read(street: Street, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(street.bundle, tmp_path / "bundle"))
    path = bundle / "people" / "finder.safetensors"
    learned = np.array([2046.7, 2.1, 7.7, 0.0, 0.0])  # from 61 accounts with ten events each, all of one item
    save_file(load_file(path) | {"habits.weights": learned}, path)
    sign(bundle)
    changed = load_bundle(bundle)
    found = changed.people(changed.dataset.accounts[3])
    assert np.isfinite([found.confidence, *found.chances]).all()


def test_a_forgotten_account_leaves_no_times_and_no_fold(street: Street, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(street.bundle, tmp_path / "bundle"))
    gone = street.onnx.dataset.accounts[7]
    forget_in_bundle(bundle, [gone])
    after = load_bundle(bundle)
    assert after.finder.learned.fold.tolist() == np.delete(street.onnx.finder.learned.fold, 7).tolist()
    assert after.dataset.times is not None
    assert len(after.dataset.times) == len(after.dataset.events)
    for account in (*street.onnx.dataset.accounts[5:7], *street.onnx.dataset.accounts[8:10]):
        assert_same_people(after.people(account), street.onnx.people(account))
    with pytest.raises(DataError, match="unknown account"):
        after.people(gone)


def test_the_commands(street: Street, shared: str) -> None:
    items, times = timed_log(street.onnx, shared)
    given = ["--history", ",".join(items), "--times", ",".join(times)]
    wanted = street.torch.people(shared, k=3)
    for place in (street.run, street.bundle):
        done = run("people", place, "--account", shared, "-k", 3, "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["count"], found["confidence"]) == (wanted.count, wanted.confidence)
        assert [event["person"] for event in found["events"]] == [event.person for event in wanted.events]
        alone = json.loads(run("people", place, *given, "--json").stdout)
        assert alone["account_id"] is None
        assert alone["count"] == street.torch.people(history=items, times=times).count
        for words, wish in ((["--person", "B"], {"person": "B"}), (["--together"], {"together": True})):
            for whose, asked in ((["--account", shared], (shared,)), (given, (None, items))):
                more = {"times": times} if whose is given else {}
                done = run("recommend", place, *whose, *words, "--json")
                assert done.returncode == 0, done.stderr
                wanted_list = street.torch.recommend(*asked, **more, **wish)  # type: ignore[arg-type]
                assert_same(lists_from(json.loads(done.stdout)[0]), wanted_list)
    shown = run("people", street.bundle, *given)
    assert "the history: " in shown.stdout
    assert "omit --all" in run("recommend", street.bundle, "--all", "--together", "--json").stderr
    assert "--times needs --history" in run("recommend", street.bundle, *given).stderr


def test_no_torch_is_needed_to_find_people(street: Street, shared: str) -> None:
    import subprocess
    import sys

    code = (
        "import sys\n"
        "for package in ('torch', 'jaxtyping', 'polars', 'onnx'): sys.modules[package] = None\n"
        "from lightgc2n.__main__ import main\n"
        "sys.argv = ['lightgc2n', 'people', *sys.argv[1:], '--json']\n"
        "main()\n"
    )
    words = [sys.executable, "-c", code, str(street.bundle), "--account", shared]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["count"] > 1
