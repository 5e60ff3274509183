"""`meta.properties`: which node of which cluster a log directory belongs to.

A broker that starts with another's disk, or with one of another cluster, would serve the wrong
records; it compares this file first. Version 1 is what KRaft writes: cluster.id, node.id and
directory.id (KIP-858). Version 0 stems from ZooKeeper days and has broker.id.

Pure.
"""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.config import properties as java_properties
from ottla.config.definitions import ConfigError
from ottla.protocol import uuids
from ottla.storage.files.malformed import MalformedFileError

FILE_NAME = "meta.properties"
VERSION = 1


class MetaProperties(NamedTuple):
    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: UUID | None


def encode_meta_properties(
    properties: MetaProperties, *, comments: tuple[str, ...] = ("",)
) -> bytes:
    """The file's content, its keys in the order in which Java's hash table has them.

    Apache Kafka writes an empty comment and one with the date, as `#Mon Nov 16 11:26:54 UTC 2026`.
    """
    fields: dict[str, str] = {}
    if properties.node_id is not None:
        name = "broker.id" if properties.version == 0 else "node.id"
        fields[name] = str(properties.node_id)
    if properties.directory_id is not None:
        fields["directory.id"] = uuids.encode(properties.directory_id)
    fields["version"] = str(properties.version)
    if properties.cluster_id is not None:
        fields["cluster.id"] = properties.cluster_id
    return java_properties.write(fields, comment="\n".join(comments)).encode("ascii")


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """What the file says; MalformedFileError if it lacks what its version must have."""
    try:
        fields = java_properties.read(data.decode("latin-1"))
    except ConfigError as error:
        raise MalformedFileError(path, str(error)) from error
    version = _int_of(fields, "version", path) if "version" in fields else 0
    if version not in (0, VERSION):
        raise MalformedFileError(path, f"version {version} is unknown")
    node_key = "broker.id" if version == 0 else "node.id"
    if version == VERSION:
        for name in ("cluster.id", node_key):
            if name not in fields:
                raise MalformedFileError(path, f"{name} was not found")
    directory_id = None
    if "directory.id" in fields:
        try:
            directory_id = uuids.decode(fields["directory.id"])
        except ValueError as error:
            raise MalformedFileError(path, f"directory.id: {error}") from error
    return MetaProperties(
        version,
        fields.get("cluster.id"),
        _int_of(fields, node_key, path) if node_key in fields else None,
        directory_id,
    )


def _int_of(fields: Mapping[str, str], name: str, path: str) -> int:
    try:
        return int(fields[name])
    except ValueError as error:
        raise MalformedFileError(path, f"{name} {fields[name]!r} is not a number") from error
