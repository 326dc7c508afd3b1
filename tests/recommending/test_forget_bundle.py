"""A forgotten account is in no file of the bundle any more, and nobody else notices."""

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.forget_dataset import forget_in_dataset
from lightgc2n.errors import DataError
from lightgc2n.files import writer_lock
from lightgc2n.recommending import forget_bundle
from lightgc2n.recommending.forget_bundle import forget_in_bundle
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.synthetic.households import HouseholdConfig, generate
from tests.cli.test_commands import run
from tests.export.town import EXPORTED, bundle_of


@pytest.mark.parametrize("model", EXPORTED)
def test_an_account_is_removed_and_the_others_stay(model: str, tmp_path: Path) -> None:
    before, bundle = load_bundle(bundle_of(model)), Path(shutil.copytree(bundle_of(model), tmp_path / "bundle"))
    gone = before.dataset.accounts[7]
    forget_in_bundle(bundle, [gone])
    after = load_bundle(bundle)
    assert after.dataset.accounts == [one for one in before.dataset.accounts if one != gone]
    for account in after.dataset.accounts:
        assert after.prepare(account).events.tolist() == before.prepare(account).events.tolist()
    for account in (before.dataset.accounts[6], before.dataset.accounts[8]):
        assert after.recommend(account) == before.recommend(account)
    with pytest.raises(DataError, match=f"unknown account '{gone}'"):
        after.recommend(gone)
    assert not [path for path in bundle.rglob("*") if path.is_file() and gone.encode() in path.read_bytes()]
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert forget_in_bundle(bundle, [gone]) == ([], [])


def test_accounts_without_histories_too(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(bundle_of("lightgc2n", histories=False), tmp_path / "bundle"))
    before = load_bundle(bundle).scorer.server.vectors
    forget_in_bundle(bundle, ["h000000"])
    assert (load_bundle(bundle).scorer.server.vectors == before[1:]).all()


def test_a_link_still_points_at_the_bundle_and_no_old_one_is_left(tmp_path: Path) -> None:
    shutil.copytree(bundle_of("sasrec"), tmp_path / "first")
    os.symlink(tmp_path / "first", tmp_path / "current")
    forget_in_bundle(tmp_path / "current", ["h000003"])
    assert (tmp_path / "current").is_symlink()
    for name in ("first", "current"):
        assert "h000003" not in load_bundle(tmp_path / name).dataset.accounts
    assert sorted(path.name for path in tmp_path.iterdir()) == ["current", "first"]


def test_a_damaged_bundle_stays_as_it_is(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(bundle_of("sasrec"), tmp_path / "bundle"))
    (bundle / "server" / "accounts.txt").write_text("h000003\n")
    with pytest.raises(DataError, match="checksum differs"):
        forget_in_bundle(bundle, ["h000003"])
    assert (bundle / "server" / "accounts.txt").read_text() == "h000003\n"


def test_the_command(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(bundle_of("sasrec"), tmp_path / "bundle"))
    done = run("forget", "h000003", "h000005", "--bundle", bundle)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{bundle}: forgot 2 accounts\n  stays: what the model has learned")
    assert "no account 'h000003' is there" in run("forget", "h000003", "--bundle", bundle).stderr
    assert "Give --data DIR, --run RUN, --bundle BUNDLE or --store STORE" in run("forget", "h000003").stderr


def test_items_that_only_they_had_are_reported(tmp_path: Path) -> None:
    """These items stay in the device part, so the command names them."""
    bundle = Path(shutil.copytree(bundle_of("sasrec"), tmp_path / "bundle"))
    before = load_bundle(bundle)
    held = {account: set(before.prepare(account).events.tolist()) for account in before.dataset.accounts}
    gone = ["h000003", "h000005"]
    theirs = set().union(*(held.pop(account) for account in gone)) - set().union(*held.values())
    assert theirs
    facts = json.loads(run("forget", *gone, "--bundle", bundle, "--json").stdout)[str(bundle)]
    assert facts["items_left"] == [before.dataset.items[item] for item in sorted(theirs)]
    assert f"{len(theirs)} items that only they had" in facts["stays"][1]


def test_two_at_once_both_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second starts when the first has read the bundle and not yet written it."""
    bundle = Path(shutil.copytree(bundle_of("sasrec"), tmp_path / "bundle"))
    write, threads, waiting = forget_bundle._write_server, [], threading.Event()
    monkeypatch.setattr(writer_lock, "notify", lambda _: waiting.set())

    def write_late(*arguments: Any) -> None:
        if not threads:
            threads.append(threading.Thread(target=forget_in_bundle, args=(bundle, ["h000002"])))
            threads[0].start()
            assert waiting.wait(60)
        write(*arguments)

    monkeypatch.setattr(forget_bundle, "_write_server", write_late)
    forget_in_bundle(bundle, ["h000001"])
    threads[0].join()
    assert not {"h000001", "h000002"} & set(load_bundle(bundle).dataset.accounts)


def test_a_foreign_file_in_the_bundle_is_left_alone(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(bundle_of("sasrec"), tmp_path / "bundle"))
    (bundle / "notes.txt").write_text("mine")
    done = run("forget", "h000003", "--bundle", bundle)
    assert (done.returncode, (bundle / "notes.txt").read_text()) == (2, "mine")
    assert "holds notes.txt, which is not part of a bundle" in done.stderr


def test_both_are_looked_at_before_either_is_changed(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(bundle_of("sasrec"), tmp_path / "bundle"))
    generate(HouseholdConfig(accounts=20), seed=0, out=tmp_path / "data")
    before = load_dataset(tmp_path / "data").checksum
    words = ["forget", "h000003", "--data", tmp_path / "data", "--bundle"]
    assert run(*words, tmp_path / "nothing").returncode == 2
    assert load_dataset(tmp_path / "data").checksum == before
    forget_in_dataset(tmp_path / "data", ["h000003"])
    done = run(*words, bundle)  # what a broken try has left over
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path / 'data'}: no such account is there\n{bundle}: forgot 1 account\n")
    assert run(*words, bundle).returncode == 2
