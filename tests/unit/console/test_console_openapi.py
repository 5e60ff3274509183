"""The description of the API is the route table, and is whole."""

import re
from typing import Any

from starlette.routing import Route

from ottla.console.web.api.openapi import document
from ottla.console.web.api.routes import API, api_routes

SPEC = document(API)


def test_every_route_is_described_and_nothing_else() -> None:
    described = {
        (method.upper(), path) for path, found in SPEC["paths"].items() for method in found
    }
    routed = {
        (method, route.path.replace(":path}", "}"))
        for route in api_routes()
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert described == routed - {("GET", "/api/openapi.json")}


def test_names_are_unique_and_path_parameters_declared() -> None:
    names = [found["operationId"] for path in SPEC["paths"].values() for found in path.values()]
    assert len(set(names)) == len(names)
    for path, methods in SPEC["paths"].items():
        for operation in methods.values():
            declared = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path))


def test_every_change_needs_the_token_and_no_question_does() -> None:
    for methods in SPEC["paths"].values():
        for method, operation in methods.items():
            assert ("security" in operation) is (method != "get")


def test_no_schema_is_left_open() -> None:
    def closed(schema: dict[str, Any], where: str) -> None:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if "object" in kinds:
            assert schema.get("properties") or schema.get("additionalProperties"), where
            for name, inner in schema.get("properties", {}).items():
                closed(inner, f"{where}.{name}")
        if "array" in kinds:
            closed(schema["items"], f"{where}[]")

    for path, methods in SPEC["paths"].items():
        for method, operation in methods.items():
            for content in operation["responses"]["200"]["content"].values():
                closed(content["schema"], f"{method} {path}")
            if "requestBody" in operation:
                body = operation["requestBody"]["content"]["application/json"]["schema"]
                closed(body, f"body of {method} {path}")
