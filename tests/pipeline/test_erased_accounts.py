"""An erased account does not come back: not by a snapshot that was taken before, not by an old bundle."""

from pathlib import Path

import pytest

from lightgc2n.data.tombstones import add_tombstones
from lightgc2n.pipeline import steps
from lightgc2n.pipeline.run_pipeline import forget_erased, roll_back, run_round
from lightgc2n.recommending.load_bundle import load_bundle
from tests.pipeline.shop import events_of, settings_of, shop

GONE = "who07"


def files_with(folder: Path, text: str) -> list[str]:
    """The files below a folder that hold a text."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    return [str(path.relative_to(folder)) for path in paths if text.encode() in path.read_bytes()]


def test_an_account_in_a_bundle_is_found_by_this_search(tmp_path: Path) -> None:
    shop(tmp_path, 5)
    settings = settings_of(tmp_path)
    run_round(settings)
    assert "rounds/0001/bundle/server/accounts.txt" in files_with(settings.folder, GONE)


@pytest.mark.parametrize("name", ["train", "compare", "count", "export"])
def test_an_account_that_is_erased_during_a_round_is_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store, settings = shop(tmp_path, 5), settings_of(tmp_path)
    table = steps.BEFORE_DECISION if name in steps.BEFORE_DECISION else steps.PROMOTED
    real = table[name]

    def erase_then(work: steps.Work) -> steps.Facts:
        facts = real(work)
        store.erase_account(GONE)
        return facts

    monkeypatch.setitem(table, name, erase_then)
    assert run_round(settings).promoted
    assert files_with(settings.folder, GONE) == []
    assert not load_bundle(settings.folder / "live").knows(GONE)
    assert load_bundle(settings.folder / "live").knows("who08")


def test_rollback_does_not_bring_an_erased_account_back(tmp_path: Path) -> None:
    store, settings = shop(tmp_path, 5), settings_of(tmp_path)
    run_round(settings)
    store.append(events_of(range(5, 8)))
    run_round(settings)
    store.erase_account(GONE)
    roll_back(settings)
    assert not load_bundle(settings.folder / "live").knows(GONE)
    assert files_with(settings.folder, GONE) == []


def test_the_next_round_and_forget_clean_what_is_kept(tmp_path: Path) -> None:
    store, settings = shop(tmp_path, 5), settings_of(tmp_path)
    run_round(settings)
    store.erase_account(GONE)
    assert not run_round(settings).promoted  # no newer event; the erased account goes all the same
    assert files_with(settings.folder, GONE) == []
    store.erase_account("who08")
    assert forget_erased(settings) == 1
    assert files_with(settings.folder, "who08") == []


def test_accounts_of_a_tombstone_file_are_left_out(tmp_path: Path) -> None:
    shop(tmp_path, 5)
    settings = settings_of(tmp_path, tombstones="gone.json")
    add_tombstones(tmp_path / "gone.json", [GONE])
    run_round(settings)
    assert files_with(settings.folder, GONE) == []
