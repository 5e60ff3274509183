"""The entry point of the `ottla` command."""

from __future__ import annotations

import click


@click.group()
def root() -> None:
    """Ottla: an event streaming platform that speaks Apache Kafka's protocol."""


def main() -> None:
    """Run the command line."""
    root()
