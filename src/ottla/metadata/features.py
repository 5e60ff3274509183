"""Which features exist, which levels this version supports, and how a cluster changes them.

A feature level that the cluster has finalized is a promise that every broker and controller can
read what that level writes, so a level is only raised when all of them say so (KIP-584).

Pure.
"""

from collections.abc import Mapping

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import FeatureLevelRecord, MetadataRecord, RecordFeature

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (7, 30),
    KRAFT_VERSION: (0, 1),
    ELIGIBLE_LEADER_REPLICAS: (0, 1),
    "group.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}

# What a new cluster of release 4.3 starts with; kraft.version is agreed by Raft, not here.
RELEASE_FEATURES: Mapping[str, int] = {
    METADATA_VERSION: 30,
    ELIGIBLE_LEADER_REPLICAS: 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
# Levels of metadata.version by the names that people give them; 4.3-IV0 is the release's.
METADATA_VERSION_NAMES: Mapping[int, str] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}


def supported_feature_records() -> tuple[RecordFeature, ...]:
    return tuple(RecordFeature(name, *levels) for name, levels in SUPPORTED_FEATURES.items())


def feature_level_records(levels: Mapping[str, int]) -> list[MetadataRecord]:
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]


def is_elr_enabled(image: MetadataImage) -> bool:
    return image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0
