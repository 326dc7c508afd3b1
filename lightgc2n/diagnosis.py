"""Check which packages and devices are installed and usable, by trying them."""

import importlib
import importlib.metadata
import os
import platform
import re
from typing import Any

from lightgc2n import __version__
from lightgc2n.devices import DEVICES

MODULE_OF_PACKAGE = {"prometheus-client": "prometheus_client"}
EXTRAS = ("core", "train", "serve", "store", "report", "tune", "export", "cluster")


def diagnose() -> dict[str, Any]:
    """Return everything that `lightgc2n doctor` shows."""
    try:
        extras = {extra: {package: _try(package, needs) for package, needs in _needs(extra)} for extra in EXTRAS}
    except importlib.metadata.PackageNotFoundError:  # run from source, as on a bare GPU machine
        extras = {"core": {package: _try(package, "") for package in ("numpy", "safetensors", "typer", "rich")}}
        extras["train"] = {package: _try(package, "") for package in ("torch", "jaxtyping")}
    advice = [
        f"To use the extra {extra}: pip install 'lightgc2n[{extra}]'"
        for extra, packages in extras.items()
        if extra != "core" and not all(facts["works"] for facts in packages.values())
    ]
    return {
        "lightgc2n": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "extras": extras,
        "devices": _devices() if extras["train"]["torch"]["works"] else [],
        "advice": advice,
    }


def _needs(extra: str) -> list[tuple[str, str]]:
    """Return the packages and required versions of an extra, from the metadata of the installed project."""
    requirements = []
    for line in importlib.metadata.requires("lightgc2n") or []:
        wanted, _, marker = line.partition(";")
        in_extra = re.search(r"extra == ['\"](\w+)['\"]", marker)
        if (in_extra.group(1) if in_extra else "core") == extra:
            match = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?\s*(.*)", wanted.strip())
            assert match is not None, f"a requirement without a name: {line}"
            requirements.append((match.group(1), match.group(2)))
    return requirements


def _try(package: str, needs: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"needs": needs, "version": None, "works": False, "problem": None}
    try:
        facts["version"] = importlib.metadata.version(package)
        importlib.import_module(MODULE_OF_PACKAGE.get(package, package))
    except importlib.metadata.PackageNotFoundError:
        facts["problem"] = "not installed"
    except Exception as problem:  # a broken package may raise anything, and this command reports it
        facts["problem"] = f"{type(problem).__name__}: {problem}"
    else:
        facts["works"] = True
    return facts


def _devices() -> list[dict[str, Any]]:
    units = [unit for device in DEVICES.values() for unit in device.list_units()]
    return [{"name": name, "what": description, **_add_on(name)} for name, description in units]


def _add_on(device: str) -> dict[str, Any]:
    """Return whether a small product on the device is correct."""
    import torch

    try:
        works = bool((torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)).sum().item() == 512)
    except RuntimeError as problem:
        return {"works": False, "problem": str(problem).splitlines()[0]}
    return {"works": works, "problem": None if works else "gives wrong numbers"}
