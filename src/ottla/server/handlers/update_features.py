"""UpdateFeatures: finalize other levels of the cluster's features, all that are asked for or none.

Versions 0 to 2. Version 2 says so with one error alone; before that each feature has a result, but
only where all of them succeeded. Version 0 cannot ask for a downgrade.
"""

from typing import Any

from ottla.metadata.features import FeatureUpdate, UpgradeType, decide_update_features
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


async def handle(services: Services, call: Call, request: Any) -> Fields:
    updates = {
        update.feature: FeatureUpdate(
            update.feature,
            update.max_version_level,
            given(update, "upgrade_type", UpgradeType.UPGRADE),
        )
        for update in request.feature_updates
    }
    await services.metadata.submit(
        lambda image: decide_update_features(
            image,
            list(updates.values()),
            kraft_version=services.metadata.kraft_version,
            validate_only=given(request, "validate_only", False),
        )
    )
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "results": [
            {"feature": update.feature, "error_code": ErrorCode.NONE, "error_message": None}
            for update in request.feature_updates
        ],
    }
