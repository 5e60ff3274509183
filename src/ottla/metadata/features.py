"""Which features exist, which levels this version supports, and how a cluster changes them.

A feature level that the cluster has finalized is a promise that every broker and controller can
read what that level writes, so a level is only raised when all of them say so (KIP-584).

Pure.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.metadata.decision import Decision
from ottla.metadata.image import DEFAULT_BROKER_RESOURCE, MetadataImage
from ottla.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RecordFeature,
)
from ottla.protocol.errors import ErrorCode, KafkaError

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
MIN_INSYNC_REPLICAS = "min.insync.replicas"
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
TRANSACTIONS_SINCE = 13  # levels of metadata.version that brought a kind of record
CONTROLLERS_SINCE = 15
DIRECTORIES_SINCE = 17
ELIGIBLE_LEADER_REPLICAS_SINCE = 23
CORDONED_DIRECTORIES_SINCE = 30


def supported_feature_records() -> tuple[RecordFeature, ...]:
    return tuple(RecordFeature(name, *levels) for name, levels in SUPPORTED_FEATURES.items())


def feature_level_records(levels: Mapping[str, int]) -> list[MetadataRecord]:
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]


def is_elr_enabled(image: MetadataImage) -> bool:
    return image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    max_version_level: int
    upgrade_type: int = UpgradeType.UPGRADE


def decide_update_features(
    image: MetadataImage,
    updates: Sequence[FeatureUpdate],
    *,
    kraft_version: int,
    validate_only: bool = False,
) -> Decision[None]:
    """Finalize new levels: all that are asked for, each once, or KafkaError and none of them."""
    records: list[MetadataRecord] = []
    for update in updates:
        if update.name == KRAFT_VERSION:
            if update.max_version_level != kraft_version:
                raise _refused(f"{KRAFT_VERSION} stays at {kraft_version}, as it was formatted")
            continue
        records += _update(image, update)
    return Decision(() if validate_only else records, None)


def _update(image: MetadataImage, update: FeatureUpdate) -> list[MetadataRecord]:
    name, level = update.name, update.max_version_level
    current = image.features.get(name, 0)
    if level < 0:
        raise _refused(f"{name} cannot have the negative level {level}")
    if update.upgrade_type not in list(UpgradeType):
        raise _refused(f"{update.upgrade_type} is no kind of upgrade")
    _check_supported(image, name, level)
    is_upgrade = update.upgrade_type == UpgradeType.UPGRADE
    if level < current and is_upgrade:
        raise _refused(f"{name} is at {current}; going down to {level} must be asked for as such")
    if level > current and not is_upgrade:
        raise _refused(f"{name} is at {current}; going up to {level} is no downgrade")
    if level == current:
        return []
    if name == METADATA_VERSION and level < current:
        raise _refused(f"{name} cannot go down from {current}, as records might be lost")
    records: list[MetadataRecord] = [FeatureLevelRecord(name=name, feature_level=level)]
    if name == ELIGIBLE_LEADER_REPLICAS:
        if level == 0:
            return [*records, ClearElrRecord()]
        if image.features.get(METADATA_VERSION, 0) < ELIGIBLE_LEADER_REPLICAS_SINCE:
            raise _refused(f"{name} needs {METADATA_VERSION} {ELIGIBLE_LEADER_REPLICAS_SINCE}")
        records += common_min_insync_records(image)
    return records


def common_min_insync_records(image: MetadataImage) -> list[MetadataRecord]:
    """Let all nodes see one minimum, which eligible leader replicas are counted against."""
    records: list[MetadataRecord] = []
    if MIN_INSYNC_REPLICAS not in image.configs.get(DEFAULT_BROKER_RESOURCE, {}):
        records.append(
            ConfigRecord(
                resource_type=DEFAULT_BROKER_RESOURCE.type,
                resource_name=DEFAULT_BROKER_RESOURCE.name,
                name=MIN_INSYNC_REPLICAS,
                value=image.static_configs.get(MIN_INSYNC_REPLICAS, "1"),
            )
        )
    for resource, values in image.configs.items():
        is_one_broker = resource.type == DEFAULT_BROKER_RESOURCE.type and resource.name
        if is_one_broker and MIN_INSYNC_REPLICAS in values:
            records.append(
                ConfigRecord(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    name=MIN_INSYNC_REPLICAS,
                    value=None,
                )
            )
    return records


def _check_supported(image: MetadataImage, name: str, level: int) -> None:
    own = SUPPORTED_FEATURES.get(name)
    if own is None:
        raise _refused(f"{name} is not a feature that can be updated")
    if level != 0 and not own[0] <= level <= own[1]:
        raise _refused(f"the controller supports {name} from {own[0]} to {own[1]}, not {level}")
    nodes = [(f"broker {b.broker_id}", b.features) for b in image.brokers.values()]
    nodes += [(f"controller {c.controller_id}", c.features) for c in image.controllers.values()]
    for node, features in nodes:
        supported = features.get(name)
        lowest, highest = (0, 0) if supported is None else supported
        if level != 0 and not lowest <= level <= highest:
            raise _refused(f"{node} supports {name} from {lowest} to {highest}, not {level}")


def _refused(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, sentence[0].upper() + sentence[1:])
