"""The reference page of the HTTP API, from the service's OpenAPI document."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lightgc2n.serving.app import create_app
from lightgc2n.serving.settings import ServiceSettings


def http_page() -> str:
    """The page: every route with its parameters, body, answer and errors."""
    settings = ServiceSettings(bundle=Path("bundle"))
    service: Any = SimpleNamespace(settings=settings, limits=settings.limits)  # routes ask it for more only when called
    document = create_app(service).openapi()
    lines = ["# HTTP API", "", "Made from the OpenAPI document that the service sends at `/openapi.json`.",
             "[The guide](../serving.md) shows the routes in use, with limits, keys and status codes.", ""]  # fmt: skip
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            lines += [f"## {method.upper()} {path}", "", *_operation(operation)]
    lines += ["## Bodies", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += [f"### {name}", "", *_schema(schema)]
    return "\n".join(lines)


def _operation(operation: dict[str, Any]) -> list[str]:
    lines = [operation.get("description", operation["summary"]), ""]
    if parameters := operation.get("parameters"):
        lines += ["| parameter | in | type | default |", "|---|---|---|---|"]
        lines += [f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} | {_default(one['schema'])} |"
                  for one in parameters]  # fmt: skip
        lines.append("")
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        lines += [f"Body: {_type(content['schema'])}", ""]
        for name, example in content.get("examples", {}).items():
            lines += [f"For example, {name}:", "", "```json", json.dumps(example["value"]), "```", ""]
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            content = response.get("content", {}).get("application/json", {}).get("schema", {})
            lines += [f"Answer {status}: {_type(content)}", ""]
    errors = ", ".join(f"`{status}`" for status in operation["responses"] if not status.startswith("2"))
    return [*lines, f"Errors: {errors}, each with the body [ProblemBody](#problembody).", ""]


def _schema(schema: dict[str, Any]) -> list[str]:
    lines = [schema["description"], ""] if "description" in schema else []
    if "properties" not in schema:
        return [*lines, _type(schema), ""]
    required = set(schema.get("required", ()))
    lines += ["| field | type | default | |", "|---|---|---|---|"]
    for name, field in schema["properties"].items():
        default = "required" if name in required else _default(field)
        lines.append(f"| `{name}` | {_type(field)} | {default} | {_cell(field.get('description', ''))} |")
    return [*lines, ""]


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    return "" if default is None else f"`{json.dumps(default)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _type(schema: dict[str, Any]) -> str:
    """A type in words; a named body becomes a link to its table."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(_type(one) for one in schema.get("anyOf", schema.get("oneOf", ())))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any value"))
