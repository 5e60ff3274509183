"""Under which host do others reach a node whose configuration names none?

`listeners=PLAINTEXT://:9092` binds every interface. What clients are told must be a place to go to:
Kafka tells them the canonical name of the machine, and so does this.

Shell: asks the resolver, in a thread, and only where a host is missing.
"""

from collections.abc import Sequence
from dataclasses import replace

from ottla.metadata.records import RecordEndpoint
from ottla.runtime.interfaces import Runtime


async def with_own_host_name(
    runtime: Runtime, endpoints: Sequence[RecordEndpoint]
) -> tuple[RecordEndpoint, ...]:
    """The same endpoints, none without a host."""
    if all(one.host for one in endpoints):
        return tuple(endpoints)
    host_name = await runtime.offload.run(runtime.network.host_name)
    return tuple(one if one.host else replace(one, host=host_name) for one in endpoints)
