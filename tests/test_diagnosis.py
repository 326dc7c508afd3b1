"""What doctor finds."""

import importlib.metadata

import pytest

from lightgc2n import diagnosis


def test_installed_packages_are_tried() -> None:
    found = diagnosis.diagnose()
    assert found["extras"]["core"]["numpy"]["works"]
    assert found["extras"]["train"]["torch"]["version"]
    assert found["devices"][0] == {"name": "cpu", "what": found["devices"][0]["what"], "works": True, "problem": None}


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version

    def without_optuna(name: str) -> str:
        if name == "optuna":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", without_optuna)
    found = diagnosis.diagnose()
    assert found["extras"]["tune"]["optuna"]["problem"] == "not installed"
    assert "To use the extra tune: pip install 'lightgc2n[tune]'" in found["advice"]


def test_a_broken_package_does_not_break_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(diagnosis.importlib, "import_module", broken)
    found = diagnosis.diagnose()
    assert found["extras"]["core"]["numpy"]["problem"] == "RuntimeError: no such instruction"
    assert found["devices"] == []


def test_it_runs_from_its_source_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", unknown)
    found = diagnosis.diagnose()
    assert found["extras"]["train"]["torch"]["works"]
