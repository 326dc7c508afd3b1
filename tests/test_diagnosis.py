"""What doctor finds."""

import importlib.metadata

import pytest

from lightgc2n import diagnosis


def test_installed_packages_are_tried() -> None:
    actual = diagnosis.diagnose()
    assert actual["extras"]["core"]["numpy"]["works"]
    assert actual["extras"]["train"]["torch"]["version"]
    assert actual["devices"][0] == {"name": "cpu", "what": actual["devices"][0]["what"], "works": True, "problem": None}


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version

    def without_optuna(name: str) -> str:
        if name == "optuna":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", without_optuna)
    actual = diagnosis.diagnose()
    assert actual["extras"]["tune"]["optuna"]["problem"] == "not installed"
    assert "To use the extra tune: pip install 'lightgc2n[tune]'" in actual["advice"]


def test_a_broken_package_does_not_break_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(diagnosis.importlib, "import_module", broken)
    actual = diagnosis.diagnose()
    assert actual["extras"]["core"]["numpy"]["problem"] == "RuntimeError: no such instruction"
    assert actual["devices"] == []


def test_it_runs_from_its_source_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", unknown)
    actual = diagnosis.diagnose()
    assert actual["extras"]["train"]["torch"]["works"]
