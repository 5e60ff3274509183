"""Is it well? The page that answers at a glance."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.web.rendering import context_of, page

EVENTS_SHOWN = 40
GROUPS_SHOWN = 6


async def overview(request: Request) -> Response:
    console = context_of(request)
    digest = console.digest
    sampler = console.sampler
    topics = digest.topics.values()
    own = [row for row in topics if not row.is_internal]
    busiest = sorted(own, key=lambda row: (-(row.rate or 0.0), row.name))[:GROUPS_SHOWN]
    values = {
        "brokers": digest.brokers,
        "metadata": digest.view.metadata,
        "topic_count": len(own),
        "partition_count": sum(row.partition_count for row in topics),
        "group_count": len(digest.groups) - len(digest.view.markers),
        "size_bytes": sum(row.size_bytes or 0 for row in topics),
        "produced": sampler.cluster.newest("produced"),
        "consumed": sampler.cluster.newest("consumed"),
        "lag": sampler.cluster.newest("lag"),
        "slowest": digest.slowest_groups[:GROUPS_SHOWN],
        "lags": {
            row.group_id: sampler.group_lags.recent(row.group_id, 60)
            for row in digest.slowest_groups[:GROUPS_SHOWN]
        },
        "busiest": busiest,
        "rates": {row.name: sampler.topic_rates.recent(row.name, 60) for row in busiest},
        "troubled": digest.troubled_topics[:GROUPS_SHOWN],
        "events": list(sampler.events)[:EVENTS_SHOWN],
        "pipelines": digest.pipelines,
    }
    return page(request, "overview.html", values, section="overview")
