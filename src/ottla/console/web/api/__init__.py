"""The JSON API under the pages; `routes.py` lists it, `openapi.py` describes it."""
