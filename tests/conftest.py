"""Fixtures that several tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says nothing about whether it is right.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that share what is dear to make go to one worker: those of a file, of some folders, of a model."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        model = getattr(item, "callspec", None) and item.callspec.params.get("name")  # type: ignore[attr-defined]
        folder = item.path.parent.name
        shared = folder if folder in ("page", "export") else item.path.stem
        item.add_marker(pytest.mark.xdist_group(model if folder == "contract" and isinstance(model, str) else shared))


@pytest.fixture
def real_data() -> Path:
    """The folder of real logs that LIGHTGC2N_DATA names; tests that want it are skipped without it."""
    folder = os.environ.get("LIGHTGC2N_DATA")
    if not folder:
        pytest.skip("LIGHTGC2N_DATA does not name a folder with the real logs")
    return Path(folder)
