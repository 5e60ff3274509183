"""Which brokers clients are told of."""

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.metadata.image import EMPTY_IMAGE, BrokerImage, MetadataImage
from ottla.metadata.records import RecordEndpoint
from ottla.server.topology import broker_fields


def image_of(**fenced: bool) -> MetadataImage:
    brokers = {
        number: BrokerImage(
            broker_id=number,
            epoch=1,
            incarnation_id=UUID(int=number),
            endpoints=(RecordEndpoint("CLIENTS", "host", 9090 + number, 0),),
            features={},
            rack=None,
            fenced=is_fenced,
            in_controlled_shutdown=False,
            log_dirs=(),
            cordoned_log_dirs=None,
        )
        for number, is_fenced in enumerate(fenced.values(), 1)
    }
    return replace(EMPTY_IMAGE, brokers=brokers)


@pytest.mark.parametrize(
    ("image", "told"),
    [
        (image_of(a=False, b=False), [1, 2]),
        (image_of(a=True, b=False), [2]),
        # Who answers is about to go and will be back: a client must not forget it.
        (image_of(a=True, b=True), [1, 2]),
        (image_of(a=True), [1]),
    ],
)
def test_brokers_in_service_are_told_or_all_if_none_is(
    image: MetadataImage, told: list[int]
) -> None:
    assert [one["node_id"] for one in broker_fields(image, "CLIENTS")] == told
    assert len(broker_fields(image, "CLIENTS", fenced=True)) == len(image.brokers)
    assert broker_fields(image, "OTHERS") == []
