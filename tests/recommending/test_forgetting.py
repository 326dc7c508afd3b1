"""A forgotten account is in no file of the bundle any more, and nobody else notices."""

import os
import shutil
from pathlib import Path

import pytest

from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.forgetting import forget_in_dataset
from lightgc2n.data.households import HouseholdConfig, generate
from lightgc2n.errors import DataError
from lightgc2n.recommending.bundle import load_bundle
from lightgc2n.recommending.forgetting import forget_in_bundle
from tests.cli.test_commands import run
from tests.export.town import EXPORTED, bundle_of


@pytest.mark.parametrize("model", EXPORTED)
def test_an_account_goes_and_the_others_stay(model: str, tmp_path: Path) -> None:
    before, bundle = load_bundle(bundle_of(model)), Path(shutil.copytree(bundle_of(model), tmp_path / "bundle"))
    gone = before.dataset.accounts[7]
    forget_in_bundle(bundle, gone)
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
    with pytest.raises(DataError, match=f"holds no account '{gone}'"):
        forget_in_bundle(bundle, gone)


def test_accounts_without_histories_too(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(bundle_of("lightgc2n", histories=False), tmp_path / "bundle"))
    before = load_bundle(bundle).server.vectors
    forget_in_bundle(bundle, "h000000")
    assert (load_bundle(bundle).server.vectors == before[1:]).all()


def test_a_link_still_points_at_the_bundle_and_no_old_one_is_left(tmp_path: Path) -> None:
    shutil.copytree(bundle_of("sasrec"), tmp_path / "first")
    os.symlink(tmp_path / "first", tmp_path / "current")
    forget_in_bundle(tmp_path / "current", "h000003")
    assert (tmp_path / "current").is_symlink()
    for name in ("first", "current"):
        assert "h000003" not in load_bundle(tmp_path / name).dataset.accounts
    assert sorted(path.name for path in tmp_path.iterdir()) == ["current", "first"]


def test_a_damaged_bundle_stays_as_it_is(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(bundle_of("sasrec"), tmp_path / "bundle"))
    (bundle / "server" / "accounts.txt").write_text("h000003\n")
    with pytest.raises(DataError, match="not what it was"):
        forget_in_bundle(bundle, "h000003")
    assert (bundle / "server" / "accounts.txt").read_text() == "h000003\n"


def test_the_command(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(bundle_of("sasrec"), tmp_path / "bundle"))
    done = run("forget", "h000003", "--bundle", bundle)
    assert (done.returncode, done.stdout) == (0, f"{bundle}: forgotten\n")
    assert "no account 'h000003' is there" in run("forget", "h000003", "--bundle", bundle).stderr
    assert "Give --data DIR, --bundle BUNDLE or both" in run("forget", "h000003").stderr


def test_both_are_looked_at_before_either_is_changed(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(bundle_of("sasrec"), tmp_path / "bundle"))
    generate(HouseholdConfig(accounts=20), seed=0, out=tmp_path / "data")
    before = load_dataset(tmp_path / "data").checksum
    words = ["forget", "h000003", "--data", tmp_path / "data", "--bundle"]
    assert run(*words, tmp_path / "nothing").returncode == 2
    assert load_dataset(tmp_path / "data").checksum == before
    forget_in_dataset(tmp_path / "data", "h000003")
    done = run(*words, bundle)  # what a broken try has left over
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'data'}: it is not there\n{bundle}: forgotten\n")
    assert run(*words, bundle).returncode == 2
