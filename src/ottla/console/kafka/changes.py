"""The requests that change a cluster: topics, settings, committed offsets, groups.

Each can be asked for without being done where the protocol allows it (`is_dry_run`), so that a form
is checked by the broker that would obey it rather than by rules repeated here. Shell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from ottla.console.kafka.brokers import Brokers
from ottla.console.kafka.group_questions import GroupQuestions
from ottla.console.kafka.model import TopicPartition
from ottla.console.kafka.questions import BROKER_RESOURCE, check
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError

TIMEOUT_MS = 10_000
_SET = 0
_DELETE = 1
# A commit from outside of the group carries no generation and no member.
_NO_GENERATION = -1


class Changes:
    def __init__(self, brokers: Brokers, groups: GroupQuestions) -> None:
        self._brokers = brokers
        self._groups = groups

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
        *,
        is_dry_run: bool = False,
    ) -> None:
        fields = {
            "topics": [
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": replication_factor,
                    "assignments": [],
                    "configs": [{"name": k, "value": v} for k, v in configs.items()],
                }
            ],
            "timeout": TIMEOUT_MS,
            "validate_only": is_dry_run,
        }
        answer = await self._brokers.ask_any(ApiKey.CREATE_TOPICS, (5, 7), fields)
        check(answer.topics[0].error_code, answer.topics[0].error_message)

    async def delete_topic(self, name: str) -> None:
        fields = {"topics": [{"name": name, "topic_id": None}], "timeout": TIMEOUT_MS}
        answer = await self._brokers.ask_any(ApiKey.DELETE_TOPICS, (6, 6), fields)
        check(answer.responses[0].error_code, answer.responses[0].error_message)

    async def add_partitions(self, name: str, count: int, *, is_dry_run: bool = False) -> None:
        fields = {
            "topics": [{"name": name, "count": count, "assignments": None}],
            "timeout": TIMEOUT_MS,
            "validate_only": is_dry_run,
        }
        answer = await self._brokers.ask_any(ApiKey.CREATE_PARTITIONS, (1, 3), fields)
        check(answer.results[0].error_code, answer.results[0].error_message)

    async def alter_config(
        self,
        resource_type: int,
        resource: str,
        name: str,
        value: str | None,
        *,
        is_dry_run: bool = False,
    ) -> None:
        """Set one setting, or with None take the override away."""
        change = {
            "name": name,
            "config_operation": _DELETE if value is None else _SET,
            "value": value,
        }
        fields = {
            "resources": [
                {"resource_type": resource_type, "resource_name": resource, "configs": [change]}
            ],
            "validate_only": is_dry_run,
        }
        api, spoken = ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1)
        if resource_type == BROKER_RESOURCE:
            # Only the broker itself knows what it can change while it runs; others refuse.
            answer = await self._brokers.ask(int(resource), api, spoken, fields)
        else:
            answer = await self._brokers.ask_any(api, spoken, fields)
        check(answer.responses[0].error_code, answer.responses[0].error_message)

    async def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Move the committed offsets of a group that nobody is a member of."""
        coordinator = await self._groups.coordinator(group_id)
        topics: dict[str, list[dict[str, object]]] = defaultdict(list)
        for (topic, index), offset in sorted(offsets.items()):
            topics[topic].append(
                {
                    "partition_index": index,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            )
        fields = {
            "group_id": group_id,
            "generation_id_or_member_epoch": _NO_GENERATION,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        }
        answer = await self._brokers.ask(coordinator, ApiKey.OFFSET_COMMIT, (7, 8), fields)
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    raise KafkaError(
                        ErrorCode.NON_EMPTY_GROUP,
                        f"'{group_id}' has members; stop its consumers, then reset.",
                    )
                check(partition.error_code)

    async def delete_group(self, group_id: str) -> None:
        coordinator = await self._groups.coordinator(group_id)
        fields = {"groups_names": [group_id]}
        answer = await self._brokers.ask(coordinator, ApiKey.DELETE_GROUPS, (1, 2), fields)
        check(answer.results[0].error_code)
