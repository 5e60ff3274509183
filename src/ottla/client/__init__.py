"""A small wire client for what librdkafka does not offer: raw fetches, any API, any version."""

from ottla.client.client import Client, CoordinatorType
from ottla.client.config import Address, ClientConfig
from ottla.client.connection import Connection
from ottla.client.errors import CorruptBatch, Unreachable, is_retriable
from ottla.client.fetcher import Chunk, PartitionFetcher
from ottla.client.metadata import TopicMetadata, TopicPartition
from ottla.client.offsets import (
    EARLIEST,
    LATEST,
    CommittedOffset,
    commit_offsets,
    committed_offsets,
    list_offsets,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "Address",
    "Chunk",
    "Client",
    "ClientConfig",
    "CommittedOffset",
    "Connection",
    "CoordinatorType",
    "CorruptBatch",
    "PartitionFetcher",
    "TopicMetadata",
    "TopicPartition",
    "Unreachable",
    "commit_offsets",
    "committed_offsets",
    "is_retriable",
    "list_offsets",
]
