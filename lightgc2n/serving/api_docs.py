"""The documentation of the HTTP API, made from its OpenAPI document: routes and bodies, and the page at /docs."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import Any

Schema = dict[str, Any]
Row = tuple[str, ...]


@dataclass(frozen=True)
class Route:
    """One operation of the API; types are OpenAPI schemas."""

    method: str
    path: str
    description: str
    parameters: tuple[tuple[str, str, Schema], ...]  # name, place, schema
    body: Schema | None
    examples: tuple[tuple[str, Any], ...]  # name, body
    answers: tuple[tuple[str, Schema], ...]  # status, schema
    errors: tuple[str, ...]


def routes_of(document: Schema) -> list[Route]:
    """The routes of an OpenAPI document."""
    return [
        _route(method, path, operation, document["components"]["schemas"])
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]


def _route(method: str, path: str, operation: Schema, bodies: Schema) -> Route:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    responses = operation["responses"]
    answers = {status: response for status, response in responses.items() if status.startswith("2")}
    return Route(
        method=method.upper(),
        path=path,
        description=str(operation.get("description", operation["summary"])),
        parameters=tuple((one["name"], one["in"], one["schema"]) for one in operation.get("parameters", ())),
        body=content.get("schema"),
        examples=tuple((name, one["value"]) for name, one in content.get("examples", {}).items())
        or tuple(("", one) for one in _examples(content.get("schema", {}), bodies)),
        answers=tuple(
            (status, response.get("content", {}).get("application/json", {}).get("schema", {}))
            for status, response in answers.items()
        ),
        errors=tuple(status for status in responses if status not in answers),
    )


def _examples(schema: Schema, bodies: Schema) -> list[Any]:
    """The examples of a body, which may be one of several."""
    schema = bodies[schema["$ref"].rsplit("/", 1)[-1]] if "$ref" in schema else schema
    return list(schema.get("examples", [])) or [
        found for one in [*schema.get("anyOf", ()), *schema.get("oneOf", ())] for found in _examples(one, bodies)
    ]


def example_heading(name: str) -> str:
    return f"For example, {name}:" if name else "For example:"


def fields_of(schema: Schema) -> list[tuple[str, Schema, str, str]]:
    """The fields of a body: name, schema, default ("required" if there is none), and description."""
    required = set(schema.get("required", ()))
    return [
        (
            name,
            field,
            "required" if name in required else default_of(field),
            " ".join(field.get("description", "").split()),
        )
        for name, field in schema.get("properties", {}).items()
    ]


def default_of(schema: Schema) -> str:
    """The default as JSON; empty without one."""
    default = schema.get("default")
    return "" if default is None else json.dumps(default)


def type_of(schema: Schema, named: Callable[[str], str] = str) -> str:
    """A type in words.

    Args:
        named: writes the name of a body, for example as a link.
    """
    if "$ref" in schema:
        return named(schema["$ref"].rsplit("/", 1)[-1])
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(type_of(one, named) for one in [*schema.get("anyOf", ()), *schema.get("oneOf", ())])
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}), named)}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {type_of(schema['additionalProperties'], named)}"
    return str(schema.get("type", "any value"))


def docs_page(document: Schema, interactive: bool) -> str:
    """A page with all routes and bodies; readable without scripts, and with them requests can be sent from it.

    Args:
        interactive: Swagger UI is installed; it takes the place of this page where scripts run.
    """
    return "\n".join(_page(document, interactive)) + "\n"


def _page(document: Schema, interactive: bool) -> Iterator[str]:
    swagger = "/page/swagger/swagger-ui"
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield '<title>HTTP API · LightGC²N</title>\n<link rel="icon" href="/page/icon.svg" type="image/svg+xml">'
    yield '<link rel="stylesheet" href="/page/style.css">\n<link rel="stylesheet" href="/page/docs.css">'
    if interactive:
        yield f'<link rel="stylesheet" href="{swagger}.css">\n<script src="{swagger}-bundle.js" defer></script>'
    yield '<script type="module" src="/page/docs.js"></script>'
    yield '</head>\n<body>\n<a class="skip" href="#main">Skip to the content</a>'
    yield '<header class="top"><p class="brand"><a href="/">LightGC²N</a></p></header>'
    yield '<main id="main" tabindex="-1">\n<div id="swagger" hidden></div>\n<div id="plain">'
    yield '<div class="head"><h1>HTTP API</h1>'
    yield '<p class="lead">Every route of this service, made from <a href="/openapi.json">its OpenAPI document</a>.</p>'
    yield f"<p>Errors of all routes have the body {_link('ProblemBody')} and one of these statuses: "
    yield f"{_errors(document)}.</p>"
    yield '<form class="api-key" hidden><label for="key">API key, if this service needs one</label>'
    yield '<input id="key" type="password" autocomplete="off"></form></div>'
    yield from _contents(document)
    yield '<div class="reference">'
    for route in routes_of(document):
        yield from _route_html(route)
    yield '<h2 id="bodies">Bodies</h2>'
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f'<section id="{_anchor(name)}"><h3>{escape(name)}</h3>'
        yield f"<p>{escape(schema.get('description', ''))}</p>"
        rows = [
            (name, type_of(field, _link), default, escape(text)) for name, field, default, text in fields_of(schema)
        ]
        yield _table(("Field", "Type", "Default", ""), rows) if rows else f"<p>{type_of(schema, _link)}</p>"
        yield "</section>"
    yield "</div>\n</div>\n</main>\n</body>\n</html>"


def _contents(document: Schema) -> Iterator[str]:
    yield '<nav class="routes" aria-label="Routes"><ul>'
    for route in routes_of(document):
        yield f'<li><a href="#{_route_anchor(route)}">{_method(route)} {escape(route.path)}</a></li>'
    yield '<li><a href="#bodies">Bodies</a></li></ul></nav>'


def _errors(document: Schema) -> str:
    """All statuses of errors, with their names."""
    statuses = sorted({status for route in routes_of(document) for status in route.errors})
    return ", ".join(f"{status} ({HTTPStatus(int(status)).phrase})" for status in statuses)


def _route_html(route: Route) -> Iterator[str]:
    yield f'<section id="{_route_anchor(route)}"><h2>{_method(route)} <code>{escape(route.path)}</code></h2>'
    yield f"<p>{escape(route.description)}</p>"
    if route.parameters:
        rows = [(name, type_of(schema, _link), default_of(schema), where) for name, where, schema in route.parameters]
        yield _table(("Parameter", "Type", "Default", "In"), rows)
    if route.body is not None:
        yield f"<p>Body: {type_of(route.body, _link)}</p>"
    for name, body in route.examples:
        yield f'<p>{escape(example_heading(name))}</p>\n<pre tabindex="0"><code>{escape(json.dumps(body))}</code></pre>'
    for status, schema in route.answers:
        yield f"<p>Answer {status}: {type_of(schema, _link)}</p>"
    yield from _form(route)
    yield "</section>"


def _form(route: Route) -> Iterator[str]:
    """A form that sends a request; docs.js shows it."""
    anchor = _route_anchor(route)
    yield '<details class="try" hidden><summary>Try it</summary>'
    yield f'<form data-method="{route.method}" data-path="{escape(route.path)}">'
    for name, where, schema in route.parameters:
        field = f"{anchor}-{name}"
        needed = " required" if where == "path" else ""
        yield f'<p><label for="{field}">{escape(name)}</label><input id="{field}" name="{escape(name)}"'
        yield f' data-in="{where}" placeholder="{escape(default_of(schema))}"{needed}></p>'
    if route.body is not None:
        example = json.dumps(route.examples[0][1], indent=2) if route.examples else "{}"
        yield f'<p><label for="{anchor}-body">Body</label>'
        yield f'<textarea id="{anchor}-body" rows="6" spellcheck="false">{escape(example)}</textarea></p>'
    yield f'<p><button type="submit">Send {route.method} {escape(route.path)}</button></p>'
    yield '<p class="outcome" role="status"></p><div class="answer"></div></form></details>'


def _method(route: Route) -> str:
    return f'<span class="method {route.method.lower()}">{route.method}</span>'


def _route_anchor(route: Route) -> str:
    return f"{route.method.lower()}{re.sub('[^a-z0-9]+', '-', route.path.lower())}".rstrip("-")


def _table(heads: Row, rows: Sequence[Row]) -> str:
    """A table; the first cell of a row is a name, and the third a default, both as code. Types may hold links."""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(
        f'<tr><th scope="row"><code>{escape(name)}</code></th><td>{kind}</td>'
        f"<td>{f'<code>{escape(default)}</code>' if default else ''}</td><td>{text}</td></tr>"
        for name, kind, default, text in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="group" aria-label="Table">{table}</div>'


def _link(name: str) -> str:
    return f'<a href="#{_anchor(name)}">{escape(name)}</a>'


def _anchor(name: str) -> str:
    return f"body-{name.lower()}"
