"""What `ottla storage format` does: makes empty directories into those of one node of a cluster.

Kafka brokers refuse directories that nobody formatted, because an empty disk that was mounted
by mistake would otherwise join as a voter that forgot its votes. Formatting writes, per log
directory, `meta.properties` and the feature levels to start with (`bootstrap.checkpoint`), and in
the metadata directory of a first controller the snapshot at offset 0 that names the voters.

Shell over `runtime.disk`; run by the command line or before a broker starts. `meta.properties`
is written last: it marks a directory as done.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    ELIGIBLE_LEADER_REPLICAS_SINCE,
    KRAFT_VERSION,
    METADATA_VERSION,
    RELEASE_FEATURES,
    SUPPORTED_FEATURES,
    feature_level_records,
)
from ottla.metadata.records import MetadataRecord, encode_record
from ottla.protocol import uuids
from ottla.protocol.ids import Epoch, Offset
from ottla.raft.control_records import Voter, VoterEndpoint
from ottla.raft.driver import own_voter
from ottla.raft.log import DIRECTORY_NAME
from ottla.raft.node import Quorum
from ottla.raft.snapshots import BOOTSTRAP_FILE_NAME, SnapshotId, snapshot_batches
from ottla.runtime.interfaces import Random, Runtime
from ottla.storage.files.meta_properties import (
    FILE_NAME as META_PROPERTIES,
)
from ottla.storage.files.meta_properties import (
    VERSION,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)

FORMATTED_SNAPSHOT = SnapshotId(Offset(0), Epoch(0))


class FormatError(Exception):
    """Why the directories were not formatted, for the person who asked."""


class FormatResult(NamedTuple):
    cluster_id: str
    formatted: tuple[str, ...]  # directories that were written
    skipped: tuple[str, ...]  # directories that were formatted before


def random_cluster_id(random: Random) -> str:
    return uuids.encode(random.uuid4())


def read_meta_properties(runtime: Runtime, log_dir: str) -> MetaProperties | None:
    path = f"{log_dir}/{META_PROPERTIES}"
    if not runtime.disk.exists(path):
        return None
    return decode_meta_properties(runtime.disk.read_bytes(path), path)


def format_storage(
    runtime: Runtime,
    *,
    log_dirs: Sequence[str],
    metadata_log_dir: str | None = None,
    node_id: int,
    cluster_id: str,
    standalone_endpoints: Sequence[VoterEndpoint] = (),
    initial_voters: Sequence[Voter] = (),
    features: Mapping[str, int] | None = None,
    extra_records: Sequence[MetadataRecord] = (),
    ignore_formatted: bool = False,
) -> FormatResult:
    """Format every directory that is not yet.

    `standalone_endpoints` make this node the only voter; `initial_voters` name several. Neither
    leaves the voters to `controller.quorum.voters` (kraft.version 0).
    """
    metadata_log_dir = metadata_log_dir or log_dirs[0]
    directories = list(dict.fromkeys([metadata_log_dir, *log_dirs]))
    _check_arguments(node_id, cluster_id, standalone_endpoints, initial_voters)
    skipped = _formatted_before(runtime, directories, node_id, cluster_id)
    if skipped and not ignore_formatted:
        raise FormatError(
            f"{skipped[0]} is formatted already; formatted directories are only left alone when"
            " asked to (--ignore-formatted)"
        )
    records = [*feature_level_records(_checked_features(features)), *extra_records]
    written = [directory for directory in directories if directory not in skipped]
    own_ids = _directory_ids(runtime, written, node_id, metadata_log_dir, initial_voters)
    for directory in written:
        _make_durably(runtime, directory)
        if directory == metadata_log_dir:
            voters = tuple(initial_voters)
            if standalone_endpoints:
                voters = (own_voter(node_id, own_ids[directory], standalone_endpoints),)
            if voters:
                _write_voters(runtime, directory, Quorum(1, voters))
        _write_snapshot(runtime, f"{directory}/{BOOTSTRAP_FILE_NAME}", records, None, 0)
        properties = MetaProperties(VERSION, cluster_id, node_id, own_ids[directory])
        runtime.disk.write_atomic(
            f"{directory}/{META_PROPERTIES}", encode_meta_properties(properties)
        )
    return FormatResult(cluster_id, tuple(written), tuple(skipped))


def _check_arguments(
    node_id: int,
    cluster_id: str,
    standalone_endpoints: Sequence[VoterEndpoint],
    initial_voters: Sequence[Voter],
) -> None:
    if node_id < 0:
        raise FormatError(f"node.id {node_id} is negative")
    if not cluster_id.strip():
        raise FormatError("the cluster id is empty")
    if standalone_endpoints and initial_voters:
        raise FormatError("a standalone controller has no initial controllers beside it")
    if initial_voters and node_id not in {voter.voter_id for voter in initial_voters}:
        raise FormatError(f"node {node_id} is not among the initial controllers")


def _formatted_before(
    runtime: Runtime, directories: Sequence[str], node_id: int, cluster_id: str
) -> list[str]:
    formatted = []
    for directory in directories:
        properties = read_meta_properties(runtime, directory)
        if properties is None:
            continue
        if properties.cluster_id != cluster_id:
            raise FormatError(
                f"{directory} belongs to cluster {properties.cluster_id}, not to {cluster_id}"
            )
        if properties.node_id != node_id:
            raise FormatError(f"{directory} belongs to node {properties.node_id}, not to {node_id}")
        formatted.append(directory)
    return formatted


def _checked_features(wanted: Mapping[str, int] | None) -> dict[str, int]:
    levels = dict(RELEASE_FEATURES)
    for name, level in (wanted or {}).items():
        if name == KRAFT_VERSION or name not in SUPPORTED_FEATURES:
            raise FormatError(f"feature {name!r} cannot be set when formatting")
        lowest, highest = SUPPORTED_FEATURES[name]
        if not lowest <= level <= highest:
            raise FormatError(f"{name} {level} is not supported; {lowest} to {highest} are")
        levels[name] = level
    if levels[METADATA_VERSION] < ELIGIBLE_LEADER_REPLICAS_SINCE:
        levels[ELIGIBLE_LEADER_REPLICAS] = 0
    ordered = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return {name: levels[name] for name in ordered if levels[name] > 0}


def _directory_ids(
    runtime: Runtime,
    directories: Sequence[str],
    node_id: int,
    metadata_log_dir: str,
    initial_voters: Sequence[Voter],
) -> dict[str, UUID]:
    ids = {directory: runtime.random.uuid4() for directory in directories}
    for voter in initial_voters:
        if voter.voter_id == node_id and metadata_log_dir in ids:
            ids[metadata_log_dir] = voter.voter_directory_id
    return ids


def _make_durably(runtime: Runtime, directory: str) -> None:
    """A directory whose name is lost with the power takes all that it held along."""
    created = []
    path = directory.rstrip("/")
    while path and not runtime.disk.exists(path):
        created.append(path)
        path = path.rpartition("/")[0]
    runtime.disk.mkdir(directory)
    for path in created:
        runtime.disk.sync_dir(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."))


def _write_voters(runtime: Runtime, directory: str, quorum: Quorum) -> None:
    log_directory = f"{directory}/{DIRECTORY_NAME}"
    runtime.disk.mkdir(log_directory)
    path = f"{log_directory}/{FORMATTED_SNAPSHOT.file_name}"
    _write_snapshot(runtime, path, (), quorum, runtime.clock.wall_ms())


def _write_snapshot(
    runtime: Runtime,
    path: str,
    records: Sequence[MetadataRecord],
    quorum: Quorum | None,
    last_contained_timestamp_ms: int,
) -> None:
    batches = snapshot_batches(
        [encode_record(record) for record in records],
        epoch=FORMATTED_SNAPSHOT.epoch,
        quorum=quorum,
        last_contained_timestamp_ms=last_contained_timestamp_ms,
        now_ms=runtime.clock.wall_ms(),
    )
    runtime.disk.write_atomic(path, b"".join(batches))
