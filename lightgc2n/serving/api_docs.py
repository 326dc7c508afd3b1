"""The documentation of the HTTP API, made from its OpenAPI document: routes and bodies, and a plain page of them."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
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
        _route(method, path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]


def _route(method: str, path: str, operation: Schema) -> Route:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    responses = operation["responses"]
    answers = {status: response for status, response in responses.items() if status.startswith("2")}
    return Route(
        method=method.upper(),
        path=path,
        description=str(operation.get("description", operation["summary"])),
        parameters=tuple((one["name"], one["in"], one["schema"]) for one in operation.get("parameters", ())),
        body=content.get("schema"),
        examples=tuple((name, one["value"]) for name, one in content.get("examples", {}).items()),
        answers=tuple(
            (status, response.get("content", {}).get("application/json", {}).get("schema", {}))
            for status, response in answers.items()
        ),
        errors=tuple(status for status in responses if status not in answers),
    )


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
    """A plain page with all routes and bodies; readable without scripts.

    Args:
        interactive: Swagger UI is installed; it takes the place of the plain page where scripts run.
    """
    return "\n".join(_page(document, interactive)) + "\n"


def _page(document: Schema, interactive: bool) -> Iterator[str]:
    swagger = "/page/swagger/swagger-ui"
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield '<title>HTTP API · LightGC²N</title>\n<link rel="icon" href="/page/icon.svg" type="image/svg+xml">'
    yield '<link rel="stylesheet" href="/page/style.css">'
    if interactive:
        yield f'<link rel="stylesheet" href="{swagger}.css">\n<script src="{swagger}-bundle.js" defer></script>'
        yield '<script type="module" src="/page/docs.js"></script>'
    yield '</head>\n<body>\n<header class="top"><p class="brand"><a href="/">LightGC²N</a></p></header>'
    yield '<main id="main">\n<div id="swagger" hidden></div>\n<div id="plain" class="reference">\n<h1>HTTP API</h1>'
    yield '<p class="lead">Every route, from <a href="/openapi.json">the OpenAPI document</a> of this service.</p>'
    if not interactive:
        yield "<p>For a page on which requests can be tried, run <code>scripts/fetch-web</code> in the project’s "
        yield "folder and start the service again.</p>"
    for route in routes_of(document):
        yield from _route_html(route)
    yield "<h2>Bodies</h2>"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f'<section id="{_anchor(name)}"><h3>{escape(name)}</h3>'
        yield f"<p>{escape(schema.get('description', ''))}</p>"
        rows = [
            (name, type_of(field, _link), default, escape(text)) for name, field, default, text in fields_of(schema)
        ]
        yield _table(("Field", "Type", "Default", ""), rows) if rows else f"<p>{type_of(schema, _link)}</p>"
        yield "</section>"
    yield "</div>\n</main>\n</body>\n</html>"


def _route_html(route: Route) -> Iterator[str]:
    yield f"<section><h2><code>{route.method} {escape(route.path)}</code></h2>\n<p>{escape(route.description)}</p>"
    if route.parameters:
        rows = [(name, type_of(schema, _link), default_of(schema), where) for name, where, schema in route.parameters]
        yield _table(("Parameter", "Type", "Default", "In"), rows)
    if route.body is not None:
        yield f"<p>Body: {type_of(route.body, _link)}</p>"
    for name, body in route.examples:
        yield f'<p>For example, {escape(name)}:</p>\n<pre tabindex="0"><code>{escape(json.dumps(body))}</code></pre>'
    for status, schema in route.answers:
        yield f"<p>Answer {status}: {type_of(schema, _link)}</p>"
    yield f"<p>Errors: {', '.join(route.errors)}, each with the body {_link('ProblemBody')}.</p></section>"


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
