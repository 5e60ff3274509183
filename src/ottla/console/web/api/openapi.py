"""The OpenAPI description of the API, made from its route table. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.console.web.api.spec import ApiRoute

ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "What is wrong, in a sentence."}},
    "required": ["error"],
}


def document(routes: Iterable[ApiRoute]) -> dict[str, Any]:
    """OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        address = route.path.replace(":path}", "}")
        paths.setdefault(address, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ottla console",
            "version": "1",
            "description": "What the pages of the console show, as JSON. Offsets and counts are "
            "64-bit integers: read them with a parser that keeps them. Requests that change "
            "something carry the token of GET /api/v1/token in the header X-CSRF-Token.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "X-CSRF-Token"}
            },
        },
    }


def _operation(route: ApiRoute) -> dict[str, Any]:
    refused = {
        "description": "It was not done, and why.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.text,
        "parameters": [
            {
                "name": parameter.name,
                "in": parameter.place,
                "required": parameter.is_required,
                "description": parameter.text,
                "schema": parameter.schema,
            }
            for parameter in route.parameters
        ],
        "responses": {
            "200": {
                "description": route.text,
                "content": {route.media_type: {"schema": route.answer}},
            },
            "4XX": refused,
            "5XX": refused,
        },
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": route.body}},
        }
    if route.method != "GET":
        operation["security"] = [{"token": []}]
    return operation
