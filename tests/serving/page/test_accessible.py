"""What everybody needs of the page and the API's documentation: contrast, names of controls, a visible focus."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.serving.folders import PAGE
from tests.serving.page.seeing import BROWSER, Api, settled

pytestmark = BROWSER

# WCAG 2.2, 1.4.3: 4.5 to 1, and 3 to 1 for large text. Text of disabled controls is exempt.
CONTRAST = """() => {
  const numbers = text => { const found = text.match(/[\\d.]+/g).map(Number); return found.length < 4 ? [...found, 1] : found; };
  const over = (top, below) => top.slice(0, 3).map((one, place) => one * top[3] + below[place] * (1 - top[3]));
  const light = rgb => rgb.map(one => one / 255).map(one => one <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)
    .reduce((sum, one, place) => sum + one * [.2126, .7152, .0722][place], 0);
  const behind = one => {
    const layers = [];
    for (let at = one; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const wrong = [];
  for (const one of document.body.querySelectorAll('*')) {
    const text = [...one.childNodes].filter(node => node.nodeType === 3 && node.textContent.trim()).length;
    const style = getComputedStyle(one), box = one.getBoundingClientRect();
    if (!text || !one.checkVisibility() || box.width < 2 || one.closest(':disabled') || style.clipPath !== 'none') continue;
    if (numbers(style.color)[3] === 0 || style.fontSize === '0px') continue;
    const ground = behind(one), ink = over(numbers(style.color), ground);
    const [low, high] = [light(ink), light(ground)].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (high + .05) / (low + .05);
    if (ratio < (large ? 3 : 4.5)) wrong.push(`${one.className || one.tagName}: ${one.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return wrong;
}"""  # noqa: E501
NAMELESS = """() => [...document.querySelectorAll('button, a[href], input, select, iframe, [role=img], summary')]
  .filter(one => one.checkVisibility())
  .filter(one => !(one.getAttribute('aria-label') || one.textContent.trim() || one.title || one.labels?.length))
  .map(one => one.outerHTML.slice(0, 80))"""
IDS = """() => { const ids = [...document.querySelectorAll('[id]')].map(one => one.id);
  return ids.length - new Set(ids).size; }"""
HEADINGS = """() => [...document.querySelectorAll('h1, h2, h3, h4')].filter(one => one.checkVisibility())
  .map(one => one.tagName)"""


def assert_accessible(page: Any) -> None:
    page.wait_for_timeout(300)  # fades end
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(IDS) == 0
    levels = [int(name[1]) for name in page.evaluate(HEADINGS)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels)), levels


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_contrast_and_names(visit: Callable[..., Any], shared: str, scheme: str, width: int) -> None:
    how = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "reduced_motion": "reduce"}
    page = visit(**how)
    page.wait_for_selector(".chips button")
    assert_accessible(page)
    page.goto(f"{page.url.split('#')[0]}#account/{shared}")
    page.wait_for_selector(".list")
    assert_accessible(page)
    page.locator("#history .mark").last.click()
    page.get_by_role("button", name="Forget person B").click()
    settled(page)
    assert_accessible(page)
    page.get_by_role("tab", name="Model").click()
    page.wait_for_selector(".card")
    assert_accessible(page)


def test_every_stop_of_the_keyboard_can_be_seen(visit: Callable[..., Any], shared: str) -> None:
    page = visit(f"/#account/{shared}")
    page.wait_for_selector(".list")
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        outline, name = page.evaluate(
            """() => { const one = document.activeElement;
               const name = one.textContent || one.getAttribute('aria-label') || one.id;
               return [getComputedStyle(one).outlineStyle, name]; }"""
        )
        reached.add(name)
        assert outline == "solid", name
    assert {"+", "Forget person A", "account-search"} <= reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_api_is_documented_without_scripts(browser: Any, api: Api, scheme: str) -> None:
    context = browser.new_context(java_script_enabled=False, color_scheme=scheme)
    page = context.new_page()
    page.goto(api.address)
    link = page.locator("noscript a[href]")
    assert link.get_attribute("href") == "/docs"
    page.goto(f"{api.address}/docs")
    assert page.locator("#plain h1").inner_text() == "HTTP API"
    for route in api.get("/openapi.json")["paths"]:
        assert page.get_by_role("heading", name=route).count() >= 1, route
    context.close()


def without_swagger(visit: Callable[..., Any], api: Api, **how: Any) -> Any:
    """The documentation of the API as it is where scripts/fetch-web was not run."""
    page = visit("/report", **how)
    page.route("**/page/swagger/**", lambda route: route.fulfill(body=""))
    page.goto(f"{api.address}/docs")
    page.wait_for_selector(".try:visible")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_documentation_is_accessible(visit: Callable[..., Any], api: Api, scheme: str, width: int) -> None:
    page = without_swagger(visit, api, viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert_accessible(page)
    anchors = page.locator("#plain a[href^='#']").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    ids = page.locator("#plain [id]").evaluate_all("all => all.map(one => '#' + one.id)")
    assert set(anchors) <= set(ids)
    assert len(page.locator(".routes a").all()) == 1 + page.locator(".try form").count()


def test_requests_can_be_tried_without_swagger_ui(visit: Callable[..., Any], api: Api, shared: str) -> None:
    page = without_swagger(visit, api)
    people = page.locator("section", has=page.get_by_role("heading", name="GET /v1/accounts/{account}/people"))
    people.locator("summary").click()
    people.get_by_label("account").fill(shared)
    people.get_by_label("k", exact=True).fill("3")
    people.get_by_role("button").click()
    people.locator(".good", has_text="200").wait_for()
    assert json.loads(people.locator(".answer pre").inner_text()) == api.get(f"/v1/accounts/{shared}/people?k=3")
    announced = people.get_by_role("status").inner_text()
    assert announced.startswith("200 OK in ")
    assert announced.endswith(f"GET /v1/accounts/{shared}/people?k=3"), "the body is not read aloud"
    lists = page.locator("section", has=page.get_by_role("heading", name="POST /v1/recommend"))
    lists.locator("summary").click()
    lists.get_by_label("Body").fill(json.dumps({"account": shared, "k": 2}))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    lists.locator(".good", has_text="200").wait_for()
    assert len(json.loads(lists.locator(".answer pre").inner_text())["items"]) == 2


def test_a_key_that_no_request_can_have_is_the_reason(visit: Callable[..., Any], api: Api) -> None:
    page = without_swagger(visit, api)
    page.get_by_label("API key").fill("ключ")
    model = page.locator("section", has=page.get_by_role("heading", name="GET /v1/model"))
    model.locator("summary").click()
    model.get_by_role("button").click()
    model.locator(".bad", has_text="No answer came.").wait_for()
    assert "ISO-8859-1" in model.get_by_role("status").inner_text()


@pytest.mark.skipif(not (PAGE / "swagger" / "VERSION.txt").is_file(), reason="scripts/fetch-web fetches Swagger UI")
def test_requests_can_be_tried_where_swagger_ui_is_installed(visit: Callable[..., Any]) -> None:
    page = visit("/docs")
    page.wait_for_selector("#swagger .opblock")
    assert page.locator("#plain").is_hidden()
    page.locator(".opblock", has_text="/healthz").first.click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    page.wait_for_selector(".live-responses-table :text('ok')")
