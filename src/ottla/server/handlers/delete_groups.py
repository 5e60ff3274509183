"""DeleteGroups: groups without members, and all that they committed.

Versions 0 to 2.
"""

from typing import Any

from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


async def handle(services: Services, call: Call, request: Any) -> Fields:
    return {
        "results": [
            {"group_id": group_id, "error_code": await services.groups.delete_group(group_id)}
            for group_id in dict.fromkeys(request.groups_names)
        ]
    }
