"""ApiVersions: what this listener speaks, and which features the cluster has agreed on.

Versions 0 to 4. The table is the handler registry itself, so nothing is advertised that is not
served. A version above 4 is answered by the dispatcher in version 0 (KIP-511).
"""

import re
from typing import Any

from ottla.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from ottla.protocol.errors import ErrorCode
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_FROM = 3
# A feature that may be absent (level 0) confuses clients before this version (KIP-1022).
LEVEL_ZERO_FROM = 4


def handle(services: Services, call: Call, request: Any) -> Fields:
    if call.version >= SOFTWARE_FROM:
        software = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(word) for word in software):
            return {"error_code": ErrorCode.INVALID_REQUEST}
        call.connection.client_software = software
    image = services.image
    finalized = dict(image.features)
    if services.metadata.kraft_version > 0:  # agreed by Raft, not by a record of the image
        finalized[KRAFT_VERSION] = services.metadata.kraft_version
    return {
        "error_code": ErrorCode.NONE,
        "api_keys": [
            {"api_key": key, "min_version": lowest, "max_version": highest}
            for key, (lowest, highest) in sorted(call.advertised.items())
        ],
        "supported_features": [
            {"name": name, "min_version": lowest, "max_version": highest}
            for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            if lowest > 0 or call.version >= LEVEL_ZERO_FROM
        ],
        "finalized_features_epoch": image.offset,
        "finalized_features": [
            {"name": name, "min_version_level": level, "max_version_level": level}
            for name, level in sorted(finalized.items())
        ],
    }
