"""The records that rebuild an image, and the resolution of metadata transactions. Pure.

A snapshot is nothing but a shorter history: replaying `image_records(image)` into an empty image
gives `image` again. `metadata.version` comes first, because it says how to read the rest.
"""

from collections.abc import Iterable, Iterator

from ottla.metadata.features import CONTROLLERS_SINCE, METADATA_VERSION
from ottla.metadata.image import BrokerImage, FeatureRange, MetadataImage
from ottla.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RecordFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from ottla.protocol.errors import InvariantError


def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    yield from _feature_records(image)
    for broker in image.brokers.values():
        yield _broker_record(broker)
    knows_controllers = image.features.get(METADATA_VERSION, 0) >= CONTROLLERS_SINCE
    for controller in image.controllers.values() if knows_controllers else ():
        yield RegisterControllerRecord(
            controller_id=controller.controller_id,
            incarnation_id=controller.incarnation_id,
            end_points=controller.endpoints,
            features=_features(controller.features.items()),
        )
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition_id, partition in topic.partitions.items():
            yield partition.to_record(topic.topic_id, partition_id)
    for resource, values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=name, value=value
            )
    for entity, quotas in image.client_quotas.items():
        ordered = tuple(sorted(entity, key=lambda part: part.entity_type))
        for key, limit in quotas.items():
            yield ClientQuotaRecord(entity=ordered, key=key, value=limit)
    if image.next_producer_id:
        yield ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
    yield from image.acls.values()
    yield from image.scram.values()
    yield from image.delegation_tokens.values()


def _feature_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    names = sorted(image.features, key=lambda name: (name != METADATA_VERSION, name))
    for name in names:
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])


def _features(ranges: Iterable[tuple[str, FeatureRange]]) -> tuple[RecordFeature, ...]:
    return tuple(
        RecordFeature(
            name=name,
            min_supported_version=supported.min_version,
            max_supported_version=supported.max_version,
        )
        for name, supported in ranges
    )


def _broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=broker.endpoints,
        features=_features(broker.features.items()),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
        cordoned_log_dirs=broker.cordoned_log_dirs,
    )


class TransactionResolver:
    """Holds back the records of a metadata transaction until it ends (KIP-868).

    Records between begin and end count all together or, after an abort, not at all.
    """

    def __init__(self) -> None:
        self._held: list[MetadataRecord] | None = None

    @property
    def is_open(self) -> bool:
        return self._held is not None

    def resolve(self, record: MetadataRecord) -> list[MetadataRecord]:
        """The records that take effect with this one."""
        if isinstance(record, BeginTransactionRecord):
            if self._held is not None:
                raise InvariantError("the metadata log begins a transaction inside another")
            self._held = []
            return []
        if isinstance(record, EndTransactionRecord | AbortTransactionRecord):
            if self._held is None:
                raise InvariantError("the metadata log ends a transaction that it never began")
            held, self._held = self._held, None
            return held if isinstance(record, EndTransactionRecord) else []
        if self._held is not None:
            self._held.append(record)
            return []
        return [record]
