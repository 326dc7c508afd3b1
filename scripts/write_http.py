"""The reference page of the HTTP API, from the service's OpenAPI document."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lightgc2n.serving.api_docs import Route, default_of, example_heading, fields_of, routes_of, type_of
from lightgc2n.serving.app import create_app
from lightgc2n.serving.settings import ServiceSettings


def http_page() -> str:
    """The page: every route with its parameters, body, answer and errors."""
    settings = ServiceSettings(bundle=Path("bundle"))
    service: Any = SimpleNamespace(settings=settings, limits=settings.limits)  # routes ask it for more only when called
    document = create_app(service).openapi()
    lines = ["# HTTP API", "", "Made from the OpenAPI document that the service sends at `/openapi.json`.",
             "[The guide](../serving.md) shows the routes in use, with limits, keys and status codes.", ""]  # fmt: skip
    for route in routes_of(document):
        lines += [f"## {route.method} {route.path}", "", *_route(route)]
    lines += ["## Bodies", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += [f"### {name}", "", *_schema(schema)]
    return "\n".join(lines)


def _route(route: Route) -> list[str]:
    lines = [route.description, ""]
    if route.parameters:
        lines += ["| parameter | in | type | default |", "|---|---|---|---|"]
        lines += [f"| `{name}` | {where} | {_type(schema)} | {_code(default_of(schema))} |"
                  for name, where, schema in route.parameters]  # fmt: skip
        lines.append("")
    if route.body is not None:
        lines += [f"Body: {_type(route.body)}", ""]
    for name, example in route.examples:
        lines += [example_heading(name), "", "```json", json.dumps(example), "```", ""]
    for status, schema in route.answers:
        lines += [f"Answer {status}: {_type(schema)}", ""]
    errors = ", ".join(f"`{status}`" for status in route.errors)
    return [*lines, f"Errors: {errors}, each with the body [ProblemBody](#problembody).", ""]


def _schema(schema: dict[str, Any]) -> list[str]:
    lines = [schema["description"], ""] if "description" in schema else []
    if not (fields := fields_of(schema)):
        return [*lines, _type(schema), ""]
    lines += ["| field | type | default | |", "|---|---|---|---|"]
    for name, field, default, text in fields:
        shown, cell = default if default == "required" else _code(default), text.replace("|", "\\|")
        lines.append(f"| `{name}` | {_type(field)} | {shown} | {cell} |")
    return [*lines, ""]


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _type(schema: dict[str, Any]) -> str:
    """A type in words; a named body becomes a link to its table."""
    return type_of(schema, lambda name: f"[{name}](#{name.lower()})")
