"""What to say to two brokers about transactions: the normal ways, and what must be refused."""

import time
from typing import Any

from ottla.protocol.api import ApiKey
from ottla.protocol.batches import Record, build_batch
from support.conversations import POLL_S, Talk

GROUP_TYPE, TRANSACTION_TYPE = 0, 1
PREPARED = ("PrepareCommit", "PrepareAbort")
WALL_MS = 1_700_000_000_000


class Speaker:
    """A transactional producer without a client's caution."""

    def __init__(self, talk: Talk, name: str, topic: str = "t", partitions: int = 2) -> None:
        self.talk = talk
        self.id = talk.name(name)
        self.topic = talk.name(topic)
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}
        talk.topic(topic, partitions)

    def init(self, version: int = 5, **more: Any) -> Any:
        fields = {
            "transactional_id": self.id,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
            **more,
        }
        answer = self.talk.ask(ApiKey.INIT_PRODUCER_ID, version, **fields)
        if answer is not None and answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer

    def add(self, version: int, *partitions: int, **more: Any) -> Any:
        topics = [{"name": self.topic, "partitions": list(partitions)}]
        if version < 4:
            fields = {
                "v3_and_below_transactional_id": self.id,
                "v3_and_below_producer_id": self.producer_id,
                "v3_and_below_producer_epoch": self.epoch,
                "v3_and_below_topics": topics,
            }
            fields.update((f"v3_and_below_{key}", value) for key, value in more.items())
            return self.talk.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, **fields)
        one = {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "verify_only": False,
            "topics": topics,
            **more,
        }
        return self.talk.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=[one])

    def produce(self, version: int, partition: int = 0, values: int = 1, **more: Any) -> Any:
        sequence = more.pop("sequence", self.sequences.get(partition, 0))
        batch = build_batch(
            [Record(n, WALL_MS + n, None, b"v%d" % n) for n in range(values)],
            producer_id=more.pop("producer_id", self.producer_id),
            producer_epoch=more.pop("producer_epoch", self.epoch),
            base_sequence=sequence,
            is_transactional=more.pop("is_transactional", True),
        )
        data = {"index": partition, "records": bytes(batch)}
        fields = {
            "transactional_id": self.id,
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [{"name": self.topic, "partition_data": [data]}],
            **more,
        }
        answer = self.talk.ask(ApiKey.PRODUCE, version, **fields)
        if answer.responses[0].partition_responses[0].error_code == 0:
            self.sequences[partition] = sequence + values
        return answer

    def end(self, version: int, *, is_commit: bool, **more: Any) -> Any:
        fields = {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": is_commit,
            **more,
        }
        answer = self.talk.ask(ApiKey.END_TXN, version, **fields)
        self.settle()
        if answer is not None and answer.error_code == 0 and version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer

    def settle(self) -> None:
        """Until all markers are written; Kafka tells the client before."""
        deadline = time.monotonic() + 30
        while True:
            answer = self.talk.quietly(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.id])
            if answer.transaction_states[0].transaction_state not in PREPARED:
                return
            assert time.monotonic() < deadline
            time.sleep(POLL_S)  # a poll: the protocol has no way to be told

    def look(self) -> None:
        """Everything that can be seen of the transaction and of its partitions."""
        talk = self.talk

        def without_clocks(answer: Any) -> Any:
            return [
                (
                    one.error_code,
                    one.transactional_id,
                    one.transaction_state,
                    str(one.transaction_timeout),
                    one.producer_epoch,
                    sorted((topic.topic, sorted(topic.partitions)) for topic in one.topics),
                )
                for one in answer.transaction_states
            ]

        talk.ask_filtered(
            without_clocks, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.id]
        )
        self.look_at_partitions()

    def look_at_partitions(self) -> None:
        talk = self.talk

        def producers(answer: Any) -> Any:
            return sorted(
                (
                    partition.partition_index,
                    partition.error_code,
                    sorted(
                        (one.producer_epoch, one.last_sequence, one.current_txn_start_offset)
                        for one in partition.active_producers
                    ),
                )
                for topic in answer.topics
                for partition in topic.partitions
            )

        talk.ask_filtered(
            producers,
            ApiKey.DESCRIBE_PRODUCERS,
            0,
            topics=[{"name": self.topic, "partition_indexes": [0, 1]}],
        )
        for isolation in (0, 1):
            asked = [{"partition_index": n, "timestamp": -1} for n in (0, 1)]
            talk.ask(
                ApiKey.LIST_OFFSETS,
                7,
                replica_id=-1,
                isolation_level=isolation,
                topics=[{"name": self.topic, "partitions": asked}],
            )
            self.fetch(isolation)

    def fetch(self, isolation: int, offset: int = 0) -> None:
        wanted = [
            {"partition": n, "fetch_offset": offset, "partition_max_bytes": 100_000} for n in (0, 1)
        ]
        self.talk.ask(
            ApiKey.FETCH,
            11,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=1_000_000,
            isolation_level=isolation,
            topics=[{"topic": self.topic, "partitions": wanted}],
        )

    # Offsets

    def add_offsets(self, version: int, group: str, **more: Any) -> Any:
        return self.talk.ask(
            ApiKey.ADD_OFFSETS_TO_TXN,
            version,
            **{
                "transactional_id": self.id,
                "producer_id": self.producer_id,
                "producer_epoch": self.epoch,
                "group_id": group,
                **more,
            },
        )

    def commit_offsets(self, version: int, group: str, **more: Any) -> Any:
        def partition(index: int, offset: int, note: str | None = "note") -> dict[str, Any]:
            return {
                "partition_index": index,
                "committed_offset": offset,
                "committed_leader_epoch": 0,
                "committed_metadata": note,
            }

        topics = [
            {"name": self.topic, "partitions": [partition(0, 5), partition(9, 1)]},
            {"name": self.talk.name("gone"), "partitions": [partition(0, 1)]},
        ]
        fields = {
            "transactional_id": self.id,
            "group_id": group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": topics,
            **more,
        }
        return self.talk.ask(ApiKey.TXN_OFFSET_COMMIT, version, **fields)

    def fetch_offsets(self, group: str) -> None:
        for require_stable in (False, True):
            self.talk.ask(
                ApiKey.OFFSET_FETCH,
                7,
                group_id=group,
                topics=[{"name": self.topic, "partition_indexes": [0, 1]}],
                require_stable=require_stable,
            )


# The normal ways


def find_the_coordinator(talk: Talk, version: int) -> None:
    for key in (talk.name("x"), "", "y" * 300):
        if version >= 4:
            fields: dict[str, Any] = {"key_type": TRANSACTION_TYPE, "coordinator_keys": [key]}
        elif version >= 1:
            fields = {"key_type": TRANSACTION_TYPE, "key": key}
        else:
            fields = {"key": key}
        talk.ask(ApiKey.FIND_COORDINATOR, version, **fields)


def commit_and_abort_as_v1(talk: Talk, version: int) -> None:
    """All requests in the same version, or the nearest that they have."""
    speaker = Speaker(talk, f"one-{version}")
    speaker.init(min(version, 5))
    for is_commit in (True, False, True):
        speaker.add(min(version, 3), 0, 1)
        speaker.look()
        speaker.produce(9, 0, 2)
        speaker.produce(9, 1)
        speaker.produce(9, 0)
        speaker.look()
        speaker.end(min(version, 4), is_commit=is_commit)
        speaker.look()
    speaker.fetch(1, 1)


def commit_and_abort_as_v2(talk: Talk) -> None:
    speaker = Speaker(talk, "two")
    speaker.init(5)
    for is_commit in (True, False, True):
        speaker.produce(12, 0, 2)
        speaker.look()
        speaker.produce(12, 1)
        speaker.produce(12, 0)
        speaker.look()
        speaker.end(5, is_commit=is_commit)
        speaker.look()
    speaker.end(5, is_commit=False)  # nothing was added; the epoch is bumped all the same
    speaker.look()
    speaker.produce(12, 0)
    speaker.end(5, is_commit=True)
    speaker.look()


def commit_offsets_as_v1(talk: Talk, version: int) -> None:
    speaker = Speaker(talk, f"offsets-{version}")
    group = talk.name(f"group-{version}")
    talk.quietly(ApiKey.FIND_COORDINATOR, 2, key=group, key_type=GROUP_TYPE)
    speaker.init(4)
    for is_commit in (False, True):
        speaker.add_offsets(min(version, 4), group)
        speaker.commit_offsets(min(version, 4), group)
        speaker.fetch_offsets(group)
        speaker.end(min(version, 4), is_commit=is_commit)
        speaker.fetch_offsets(group)


def commit_offsets_as_v2(talk: Talk) -> None:
    speaker = Speaker(talk, "offsets-two")
    group = talk.name("group-two")
    talk.quietly(ApiKey.FIND_COORDINATOR, 2, key=group, key_type=GROUP_TYPE)
    speaker.init(5)
    for is_commit in (False, True):
        speaker.commit_offsets(5, group)
        speaker.fetch_offsets(group)
        speaker.end(5, is_commit=is_commit)
        speaker.fetch_offsets(group)


def go_on_after_an_error(talk: Talk) -> None:
    """KIP-360: as who one says one is."""
    speaker = Speaker(talk, "again")
    speaker.init(5)
    first = {"producer_id": speaker.producer_id, "producer_epoch": speaker.epoch}
    speaker.init(5, **first)
    speaker.init(5, **first)  # the answer was lost
    speaker.init(5, producer_id=speaker.producer_id, producer_epoch=speaker.epoch + 7)
    speaker.init(5, producer_id=speaker.producer_id + 5000, producer_epoch=0)
    speaker.init(5)
    speaker.init(5, **first)  # fenced by now
    for version in (3, 4):
        speaker.init(version, **first)
    speaker.init(5, producer_id=speaker.producer_id)
    speaker.init(5, producer_epoch=3)


def begin_while_a_transaction_is_open(talk: Talk) -> None:
    for version in (1, 2):
        speaker = Speaker(talk, f"open-{version}", f"open-{version}")
        speaker.init(5)
        before = {"producer_id": speaker.producer_id, "producer_epoch": speaker.epoch}
        if version == 1:
            speaker.add(3, 0)
        speaker.produce(9 if version == 1 else 12, 0)
        speaker.init(5)  # told to come back
        speaker.settle()
        speaker.look()
        speaker.init(5)
        speaker.look()
        for bump in (3, 5):
            speaker.end(bump, is_commit=True, **before)  # the zombie
        speaker.produce(9, 0, **before)
        speaker.produce(12, 0, **before)
        if version == 1:
            speaker.add(3, 0, **before)


def go_on_while_a_transaction_is_open(talk: Talk) -> None:
    """KIP-360 for a producer that failed in the middle."""
    for version in (1, 2):
        speaker = Speaker(talk, f"middle-{version}", f"middle-{version}")
        speaker.init(5)
        before = {"producer_id": speaker.producer_id, "producer_epoch": speaker.epoch}
        if version == 1:
            speaker.add(3, 0)
        speaker.produce(9 if version == 1 else 12, 0)
        speaker.init(5, **before)  # told to come back
        speaker.settle()
        speaker.init(5, **before)
        speaker.look()
        if version == 1:
            speaker.add(3, 0)
        speaker.produce(9 if version == 1 else 12, 0)
        speaker.end(4 if version == 1 else 5, is_commit=True)
        speaker.look()
        speaker.init(5, **before)


def produce_for_two(talk: Talk) -> None:
    """One request with batches of two producers, and one with topic ids."""
    one, two = Speaker(talk, "first", "two"), Speaker(talk, "second", "other")
    one.init(5)
    two.init(5)
    partitions = []
    for index, speaker in enumerate((one, two)):
        batch = build_batch(
            [Record(0, WALL_MS, None, b"v")],
            producer_id=speaker.producer_id,
            producer_epoch=speaker.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        partitions.append({"index": index, "records": bytes(batch)})
    common = {"transactional_id": one.id, "acks": -1, "timeout": 10_000}
    topic = {"name": one.topic, "partition_data": partitions}
    talk.ask(ApiKey.PRODUCE, 12, **common, topic_data=[topic])
    topic_id = talk.topic("by-id", 2)
    topic = {"topic_id": topic_id, "partition_data": partitions[:1]}
    talk.ask(ApiKey.PRODUCE, 13, **common, topic_data=[topic])
    one.topic = talk.name("by-id")
    one.look()
    one.end(5, is_commit=True)
    one.look()


def list_and_describe(talk: Talk) -> None:
    speaker = Speaker(talk, "listed")
    speaker.init(5)
    speaker.produce(12, 0)
    other = Speaker(talk, "idle", "idle")
    other.init(5)
    names = (speaker.id, other.id)

    def ours(answer: Any) -> Any:
        return (
            answer.error_code,
            sorted(answer.unknown_state_filters),
            sorted(
                (one.transactional_id, one.transaction_state)
                for one in answer.transaction_states
                if one.transactional_id in names
            ),
        )

    def ask(version: int, **more: Any) -> None:
        fields = {"state_filters": [], "producer_id_filters": [], **more}
        talk.ask_filtered(ours, ApiKey.LIST_TRANSACTIONS, version, **fields)

    for version in (0, 1, 2):
        ask(version)
        ask(version, state_filters=["Ongoing"])
        ask(version, state_filters=["Empty", "Nonsense"])
        ask(version, producer_id_filters=[other.producer_id])
        if version >= 1:
            ask(version, duration_filter=0)
            ask(version, duration_filter=10_000_000)
    for pattern in (".*listed", "listed", "", "[", ".*(listed|idle)$"):
        ask(2, transactional_id_pattern=pattern)
    unknown = talk.name("unknown")
    talk.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[unknown, ""])


def verify(talk: Talk) -> None:
    speaker = Speaker(talk, "verified")
    speaker.init(5)
    for version in (4, 5):
        speaker.add(version, 0, verify_only=True)
    speaker.add(4, 0)
    speaker.add(4, 0, 1, verify_only=True)
    speaker.add(4, 0, producer_epoch=7, verify_only=True)
    speaker.add(4, 0, producer_id=987_654, verify_only=True)
    speaker.add(4, 0, 77)
    speaker.add(5, 1, transactional_id="")
    speaker.end(5, is_commit=True)
    speaker.add(4, 0, verify_only=True)


# What must be refused


def ask_for_impossible_timeouts(talk: Talk) -> None:
    speaker = Speaker(talk, "timeouts")
    for version in (0, 5):
        for timeout_ms in (0, -1, 900_001, 900_000):
            speaker.init(version, transaction_timeout=timeout_ms)
        speaker.init(version, transactional_id="")


def ask_for_two_phases(talk: Talk) -> None:
    """KIP-939, where the broker's configuration does not allow it."""
    speaker = Speaker(talk, "phases", "phases")
    speaker.init(6)
    speaker.init(6, enable2_pc=True)
    speaker.init(6, keep_prepared_txn=True)
    speaker.init(6, enable2_pc=True, keep_prepared_txn=True)


def end_what_is_not_open(talk: Talk) -> None:
    speaker = Speaker(talk, "ends")
    unknown = {"transactional_id": talk.name("nobody")}
    for version in (0, 1, 2, 4, 5):
        speaker.end(version, is_commit=True, producer_id=3, producer_epoch=0, **unknown)
        speaker.end(version, is_commit=True, producer_id=3, producer_epoch=0, transactional_id="")
    speaker.init(5)
    for version in (0, 2, 4):
        speaker.end(version, is_commit=True)
        speaker.end(version, is_commit=False)
    speaker.end(5, is_commit=True)
    speaker.end(5, is_commit=True, producer_epoch=speaker.epoch + 1)
    speaker.end(0, is_commit=True, producer_epoch=speaker.epoch + 1)
    speaker.end(2, is_commit=True, producer_id=speaker.producer_id + 9_000)


def end_twice(talk: Talk) -> None:
    speaker = Speaker(talk, "twice")
    speaker.init(5)
    for is_commit in (True, False):
        speaker.add(3, 0)
        speaker.produce(9)
        speaker.end(4, is_commit=is_commit)
        speaker.end(4, is_commit=is_commit)
        speaker.end(4, is_commit=not is_commit)
    for is_commit in (True, False):
        speaker.produce(12, 0)
        before = {"producer_id": speaker.producer_id, "producer_epoch": speaker.epoch}
        speaker.end(5, is_commit=is_commit)
        after = {"producer_id": speaker.producer_id, "producer_epoch": speaker.epoch}
        speaker.end(5, is_commit=is_commit, **before)
        speaker.end(5, is_commit=not is_commit, **before)
        speaker.producer_id, speaker.epoch = after["producer_id"], after["producer_epoch"]
        speaker.produce(12, 0)
        speaker.end(5, is_commit=is_commit, **before)  # late: the next one is open
        speaker.producer_id, speaker.epoch = after["producer_id"], after["producer_epoch"]
        speaker.look()
        speaker.end(5, is_commit=True)
        speaker.look()


def add_what_cannot_be_added(talk: Talk) -> None:
    speaker = Speaker(talk, "adds")
    speaker.producer_id, speaker.epoch = 3, 0
    for version in (0, 2, 3):
        speaker.add(version, 0)
    speaker.init(5)
    for version in (0, 1, 2, 3):
        speaker.add(version, 0, 5)
        speaker.add(version, 0, producer_epoch=4)
        speaker.add(version, 0, producer_id=987_654)
        speaker.add(version, 0, transactional_id="")
    for version in (0, 1, 2, 4):
        speaker.add_offsets(version, talk.name("g"), producer_epoch=4)
        speaker.add_offsets(version, talk.name("g"), producer_id=987_654)
        speaker.add_offsets(version, "")
        speaker.add_offsets(version, talk.name("g"), transactional_id="")


def produce_what_was_never_added(talk: Talk, version: int) -> None:
    speaker = Speaker(talk, f"never-{version}", f"never-{version}")
    speaker.producer_id, speaker.epoch = 3, 0
    speaker.produce(version, 0)  # nobody knows the id
    speaker.init(5)
    if version < 12:
        speaker.produce(version, 0)
        speaker.add(3, 1)
        speaker.produce(version, 0)
    speaker.produce(version, 1)
    speaker.produce(version, 1, sequence=7)
    speaker.produce(version, 1, sequence=0)  # again
    speaker.produce(version, 1, producer_epoch=speaker.epoch + 1)
    speaker.produce(version, 1, is_transactional=False)
    speaker.produce(version, 1, producer_id=987_654)
    speaker.produce(version, 1, transactional_id=None)
    speaker.produce(version, 1, transactional_id=talk.name("someone-else"))
    speaker.produce(version, 8)
    speaker.end(5 if version >= 12 else 4, is_commit=True)
    speaker.look()


def commit_offsets_that_must_not_be(talk: Talk) -> None:
    speaker = Speaker(talk, "bad-offsets", "bad-offsets")
    group = talk.name("bad-group")
    talk.quietly(ApiKey.FIND_COORDINATOR, 2, key=group, key_type=GROUP_TYPE)
    speaker.init(5)
    for version in (0, 2, 3, 4):
        speaker.commit_offsets(version, group)  # not added
    speaker.add_offsets(4, group)
    for version in (3, 4, 5):
        speaker.commit_offsets(version, group, producer_epoch=9)
        speaker.commit_offsets(version, group, producer_id=987_654)
        speaker.commit_offsets(version, group, generation_id=4, member_id="nobody")
        speaker.commit_offsets(version, group, member_id="nobody")
        speaker.commit_offsets(version, "")
        speaker.commit_offsets(version, group, transactional_id=talk.name("another"))
        speaker.commit_offsets(version, group, transactional_id="")


def commit_offsets_of_members(talk: Talk) -> None:
    """KIP-447: a member that was replaced may not commit."""
    speaker = Speaker(talk, "member", "member")
    group = talk.name("member-group")
    talk.quietly(ApiKey.FIND_COORDINATOR, 2, key=group, key_type=GROUP_TYPE)
    fields = {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"}],
    }
    first = talk.quietly(ApiKey.JOIN_GROUP, 5, **fields)
    joined = talk.quietly(ApiKey.JOIN_GROUP, 5, **{**fields, "member_id": first.member_id})
    speaker.init(5)

    def commit(version: int, member_id: str, generation: int) -> None:
        speaker.commit_offsets(version, group, member_id=member_id, generation_id=generation)

    for version in (3, 5):
        if version == 3:
            speaker.add_offsets(3, group)
        commit(version, joined.member_id, joined.generation_id)  # the assignment is not there yet
        commit(version, joined.member_id, joined.generation_id + 1)
        commit(version, "nobody", joined.generation_id)
        commit(version, "", -1)
        speaker.end(4 if version == 3 else 5, is_commit=False)
    talk.quietly(
        ApiKey.SYNC_GROUP,
        5,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": joined.member_id, "assignment": b"x"}],
    )
    commit(5, joined.member_id, joined.generation_id)
    commit(5, "", -1)
    speaker.end(5, is_commit=True)
    speaker.fetch_offsets(group)


def commit_offsets_of_consumer_members(talk: Talk) -> None:
    """KIP-447 where the group is one of KIP-848: producers hear of generations, not of epochs."""
    speaker = Speaker(talk, "epochs", "epochs")
    group, member = talk.name("epoch-group"), "member-of-an-epoch"
    talk.quietly(ApiKey.FIND_COORDINATOR, 2, key=group, key_type=GROUP_TYPE)
    beat = {
        "group_id": group,
        "member_id": member,
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 30_000,
        "subscribed_topic_names": [speaker.topic],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }
    joined = talk.quietly(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **beat)
    speaker.init(5)
    for version in (3, 5):
        if version == 3:
            speaker.add_offsets(3, group)
        for who, epoch in (
            (member, joined.member_epoch),
            (member, joined.member_epoch + 1),
            (member, joined.member_epoch - 1),
            (member, -1),
            ("nobody", joined.member_epoch),
            ("", -1),
        ):
            speaker.commit_offsets(version, group, member_id=who, generation_id=epoch)
        speaker.end(4 if version == 3 else 5, is_commit=version == 5)
    speaker.fetch_offsets(group)


def write_markers(talk: Talk) -> None:
    """As an administrator who aborts what nobody else will, and as a coordinator that is late."""
    speaker = Speaker(talk, "markers", "markers")
    speaker.init(5)
    speaker.produce(12, 0)
    speaker.produce(12, 1)

    def write(version: int, partitions: tuple[int, ...], **more: Any) -> None:
        marker = {
            "producer_id": speaker.producer_id,
            "producer_epoch": speaker.epoch,
            "transaction_result": False,
            "topics": [{"name": speaker.topic, "partition_indexes": list(partitions)}],
            "coordinator_epoch": 0,
            "transaction_version": 0,
            **more,
        }
        talk.ask(ApiKey.WRITE_TXN_MARKERS, version, markers=[marker])
        speaker.look_at_partitions()

    write(1, (7,))
    write(2, (0,), transaction_version=2)  # its epoch is not above that of the records
    write(1, (0,))
    write(1, (0,))  # nothing is open any more
    write(2, (1,), transaction_version=2, producer_epoch=speaker.epoch + 1)
    write(2, (1,), transaction_version=2, producer_epoch=speaker.epoch + 1)  # again
    write(1, (0,), coordinator_epoch=-1)
    talk.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[])
    speaker.end(5, is_commit=True)
    speaker.look()


def delete_under_an_open_transaction(talk: Talk) -> None:
    speaker = Speaker(talk, "deleted", "deleted")
    speaker.init(5)
    speaker.produce(12, 0, 3)
    speaker.produce(12, 1, 2)
    partitions = [{"partition_index": 0, "offset": 2}, {"partition_index": 1, "offset": -1}]
    talk.ask(
        ApiKey.DELETE_RECORDS,
        2,
        topics=[{"name": speaker.topic, "partitions": partitions}],
        timeout=10_000,
    )
    speaker.look_at_partitions()
    speaker.end(5, is_commit=False)
    speaker.look_at_partitions()
    speaker.fetch(1, 2)
