"""A street of households behind a service, and a browser to look at them; made once for all tests of the page."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lightgc2n.export.write_bundle import ExportOptions, export_run
from lightgc2n.paper.report_files import write_report
from lightgc2n.synthetic.household_titles import write_titles
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_run
from lightgc2n.training.runs import RunPlan
from tests.paper.example import document
from tests.serving.page.seeing import CHROMIUM, KEY, Api, long_sitting
from tests.serving.running import running


@pytest.fixture(scope="session")
def street(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of households whose number of people can be told, with titles, and a report beside it."""
    folder = tmp_path_factory.mktemp("street")
    homes = HouseholdConfig(accounts=150)
    generate(homes, seed=0, out=folder / "data")
    write_titles(homes, 0, folder / "titles.tsv")
    few = TrainingConfig(epochs=1, batch_size=64, learning_rate=0.01)
    train_run(RunPlan(folder / "data", "lightgc2n", training=few), folder / "run")
    export_run(folder / "run", folder / "bundle", ExportOptions(titles=folder / "titles.tsv"))
    write_report(document(), folder / "report")
    (folder / "keys").write_text(f"{KEY}\n")
    return folder


@pytest.fixture(scope="package")
def api(street: Path) -> Iterator[Api]:
    with running(street / "bundle", report=street / "report" / "report.html") as service:
        yield Api(service.port)


@pytest.fixture(scope="package")
def shared(api: Api) -> str:
    """An account of several people, each of whom has events, with a sitting of several events."""
    for one in api.get("/v1/accounts?limit=150")["accounts"]:
        found = api.people(one["account"])
        if found["count"] > 1 and all(person["events"] for person in found["people"]) and long_sitting(found):
            return str(one["account"])
    raise AssertionError("nobody shares an account")


@pytest.fixture(scope="module")  # while it is open no other loop can run
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any, api: Api) -> Iterator[Callable[..., Any]]:
    """Opens the page; at the end nothing may have been complained of, and nobody else asked."""
    opened: list[Any] = []
    problems: list[str] = []
    asked: list[str] = []

    def open_page(path: str = "/", **how: Any) -> Any:
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}} | how)
        page.set_default_timeout(10_000)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(api.address + path)
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.close()
    assert problems == []
    assert asked
    assert not [url for url in asked if not url.startswith((api.address, "data:"))]
