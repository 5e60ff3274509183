"""How brokers join the cluster, stay in it, and leave it.

A broker registers (fenced: it may not lead yet), catches up with the metadata log, and is
unfenced by its heartbeats. Its epoch is the offset of its registration, so that whatever an
earlier life of it still says can be told apart. When it leaves in order, it first gives up its
leaderships (controlled shutdown).

Pure; who still has a live session is soft state that the caller hands in.
"""

from typing import NamedTuple
from uuid import UUID

from ottla.metadata.decision import Decision
from ottla.metadata.elections import (
    changes_when_broker_leaves,
    changes_when_broker_returns,
    has_leaderships,
)
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.image import BrokerImage, MetadataImage
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RecordEndpoint,
    RecordFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from ottla.protocol.errors import ErrorCode, KafkaError

FENCE = 1
UNFENCE = -1


class BrokerRegistration(NamedTuple):
    broker_id: int
    incarnation_id: UUID
    endpoints: tuple[RecordEndpoint, ...]
    features: tuple[RecordFeature, ...]
    rack: str | None = None
    log_dirs: tuple[UUID, ...] = ()
    previous_broker_epoch: int = -1  # from the clean shutdown file, -1 if there is none
    cordoned_log_dirs: tuple[UUID, ...] = ()


class BrokerHeartbeat(NamedTuple):
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False


class HeartbeatResult(NamedTuple):
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


def decide_register_broker(
    image: MetadataImage, registration: BrokerRegistration, *, has_live_session: bool = False
) -> Decision[int]:
    """Register a broker, fenced; the response is its epoch."""
    _check_features(image, registration.features)
    existing = image.brokers.get(registration.broker_id)
    is_same_process = (
        existing is not None and existing.incarnation_id == registration.incarnation_id
    )
    if existing is not None and not is_same_process and has_live_session and not existing.fenced:
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another process with broker id {registration.broker_id} is registered and alive",
        )
    records: list[MetadataRecord] = []
    if existing is not None and not is_same_process:
        is_unclean = registration.previous_broker_epoch != existing.epoch
        records += changes_when_broker_leaves(image, registration.broker_id, is_unclean=is_unclean)
    epoch = image.next_offset + len(records)
    records.append(
        RegisterBrokerRecord(
            broker_id=registration.broker_id,
            incarnation_id=registration.incarnation_id,
            broker_epoch=epoch,
            end_points=registration.endpoints,
            features=registration.features,
            rack=registration.rack,
            fenced=existing.fenced if existing is not None and is_same_process else True,
            in_controlled_shutdown=(
                existing.in_controlled_shutdown
                if existing is not None and is_same_process
                else False
            ),
            log_dirs=tuple(sorted(registration.log_dirs)),
            cordoned_log_dirs=tuple(sorted(registration.cordoned_log_dirs)) or None,
        )
    )
    return Decision(records, epoch)


def _check_features(image: MetadataImage, features: tuple[RecordFeature, ...]) -> None:
    supported = {feature.name: feature for feature in features}
    for name, level in image.features.items():
        feature = supported.get(name)
        if feature is None and name != METADATA_VERSION:
            lowest = highest = 0
        elif feature is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"The broker does not say which {name} it supports"
            )
        else:
            lowest, highest = feature.min_supported_version, feature.max_supported_version
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The cluster runs {name} {level}, the broker supports {lowest} to {highest}",
            )


def registered_broker(
    image: MetadataImage, broker_id: int, broker_epoch: int | None
) -> BrokerImage:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered"
        )
    if broker_epoch is not None and broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} is at epoch {broker.epoch}, not {broker_epoch}",
        )
    return broker


def decide_heartbeat(
    image: MetadataImage,
    heartbeat: BrokerHeartbeat,
    *,
    other_brokers_offset: int | None = None,
    shutdown_offset: int | None = None,
) -> Decision[HeartbeatResult]:
    """Fence, unfence or let go a broker as it asks and as is safe.

    `shutdown_offset` is where its controlled shutdown began, and `other_brokers_offset` the least
    metadata offset of the other active brokers: they must know the new leaders before it goes.
    """
    broker = registered_broker(image, heartbeat.broker_id, heartbeat.broker_epoch)
    # A broker must have read its own registration, or it would not know what it leads.
    caught_up = heartbeat.current_metadata_offset >= broker.epoch
    if broker.fenced:
        if heartbeat.want_shut_down:
            return Decision((), HeartbeatResult(caught_up, True, True))
        if heartbeat.want_fence or not caught_up:
            return Decision((), HeartbeatResult(caught_up, True, False))
        return Decision(unfence_records(image, broker), HeartbeatResult(caught_up, False, False))
    if heartbeat.want_shut_down:
        return _decide_shutdown(
            image, broker, caught_up, other_brokers_offset, shutdown_offset, heartbeat.want_fence
        )
    if heartbeat.want_fence:
        return Decision(fence_records(image, broker), HeartbeatResult(caught_up, True, False))
    return Decision((), HeartbeatResult(caught_up, False, False))


def _decide_shutdown(
    image: MetadataImage,
    broker: BrokerImage,
    caught_up: bool,
    other_brokers_offset: int | None,
    shutdown_offset: int | None,
    want_fence: bool,
) -> Decision[HeartbeatResult]:
    waits_for_others = (
        broker.in_controlled_shutdown
        and shutdown_offset is not None
        and other_brokers_offset is not None
        and other_brokers_offset < shutdown_offset
    )
    may_go = not has_leaderships(image, broker.broker_id) and not waits_for_others
    if want_fence or may_go:
        return Decision(fence_records(image, broker), HeartbeatResult(caught_up, True, True))
    if broker.in_controlled_shutdown:
        return Decision((), HeartbeatResult(caught_up, False, False))
    records: list[MetadataRecord] = [
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
    ]
    records += changes_when_broker_leaves(image, broker.broker_id)
    return Decision(records, HeartbeatResult(caught_up, False, False))


def fence_records(image: MetadataImage, broker: BrokerImage) -> list[MetadataRecord]:
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=FENCE
    )
    return [change, *changes_when_broker_leaves(image, broker.broker_id)]


def unfence_records(image: MetadataImage, broker: BrokerImage) -> list[MetadataRecord]:
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=UNFENCE
    )
    return [change, *changes_when_broker_returns(image, broker.broker_id)]


def decide_fence_broker(image: MetadataImage, broker_id: int) -> Decision[None]:
    """Fence a broker whose session has run out; several brokers will have sessions."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return Decision((), None)
    return Decision(fence_records(image, broker), None)


def decide_unregister_broker(image: MetadataImage, broker_id: int) -> Decision[None]:
    broker = registered_broker(image, broker_id, None)
    records: list[MetadataRecord] = list(changes_when_broker_leaves(image, broker_id))
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    return Decision(records, None)


def decide_register_controller(
    image: MetadataImage,
    *,
    controller_id: int,
    incarnation_id: UUID,
    endpoints: tuple[RecordEndpoint, ...],
    features: tuple[RecordFeature, ...],
) -> Decision[None]:
    existing = image.controllers.get(controller_id)
    if existing is not None and existing.incarnation_id == incarnation_id:
        return Decision((), None)
    record = RegisterControllerRecord(
        controller_id=controller_id,
        incarnation_id=incarnation_id,
        end_points=endpoints,
        features=features,
    )
    return Decision([record], None)
