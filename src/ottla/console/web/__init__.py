"""HTTP: security, rendering, pages and the JSON API."""
