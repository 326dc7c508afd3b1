"""Fixtures that several tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says nothing about whether it is right.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture
def real_data() -> Path:
    """The folder of real logs that LIGHTGC2N_DATA names; tests that want it are skipped without it."""
    folder = os.environ.get("LIGHTGC2N_DATA")
    if not folder:
        pytest.skip("LIGHTGC2N_DATA does not name a folder with the real logs")
    return Path(folder)
