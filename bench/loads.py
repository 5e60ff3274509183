"""Which loads are compared, how long each runs, and which goals they have.

A load prepares its topic once per broker and is then sampled in turns. Every sample writes
a fixed number of requests or runs a fixed time; the topic of a writing load is its own, so
that a fetch never reads what another sample still writes.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from bench import generators
from bench.brokers import BrokerProcess
from bench.generators import Sample
from bench.table import Figure, at_least, at_most

Prepare = Callable[[BrokerProcess], None]
Measure = Callable[[BrokerProcess], Sample]

# What `Load.group` may be, those of bench.transactions included.
GROUPS = frozenset(("produce", "batches", "fetch", "librdkafka", "java", "transactions"))
FETCH_BIG_REQUESTS = 2_000  # of 60 KB: 120 MB, from which 1 MB is read at a random place
FETCH_SMALL_REQUESTS = 20_000
JAVA_BATCH_BYTES = 16_384  # batch.size
# Half a gigabyte a sample: what is deleted soon need not all reach the disk.
DELETED_AT_ONCE = (("file.delete.delay.ms", "0"),)


@dataclass(frozen=True)
class Load:
    name: str
    group: str  # what --only selects
    figures: tuple[Figure, ...]
    measure: Measure
    prepare: Prepare | None = None
    is_slow: bool = False  # sampled fewer times
    bytes_written: int = 0  # in one sample, where these are many


@dataclass(frozen=True)
class Effort:
    """How much is measured: `--quick` for a glance, the full run for docs/benchmarks.md.

    Warm-up counts requests, not seconds: Apache Kafka's compiler counts calls, and on a busy
    machine a few seconds are too few of them.
    """

    seconds: float
    warmup_requests: int
    discarded_rounds: int
    rounds: int
    slow_rounds: int
    start_rounds: int
    batch_requests: int
    client_bytes: int
    java_bytes: int  # read by a consumer that needs the first second to get warm
    client_sizes: tuple[int, ...]
    latency_records: int


QUICK = Effort(2.0, 40_000, 0, 3, 1, 2, 3_000, 60_000_000, 200_000_000, (100, 1_000), 1_000)
FULL = Effort(
    4.0, 200_000, 1, 5, 3, 5, 8_000, 200_000_000, 2_000_000_000, (100, 1_000, 10_000), 5_000
)


def raw_loads(effort: Effort) -> list[Load]:
    """Loads 1 to 4: frames made in advance, so that the broker is what is measured."""
    seconds = effort.seconds

    def pipelined(broker: BrokerProcess) -> Sample:
        flags = {"create": True, "conns": 4, "inflight": 5, "seconds": seconds, "warmup": 0.3}
        return generators.rawload(broker, "pipelined", **flags)

    def one_at_a_time(broker: BrokerProcess) -> Sample:
        flags = {"create": True, "conns": 1, "inflight": 1, "seconds": seconds, "warmup": 0.3}
        return generators.rawload(broker, "single", **flags)

    def batches(records: int, size: int) -> Measure:
        def measure(broker: BrokerProcess) -> Sample:
            shape = {"create": True, "records": records, "size": size, "conns": 2}
            topic = f"batches-{uuid.uuid4().hex[:12]}"
            with broker.connect() as connection:
                connection.create_topic(topic, configs=DELETED_AT_ONCE)
                sample = generators.rawload(broker, topic, requests=effort.batch_requests, **shape)
                connection.delete_topic(topic)
            return sample

        return measure

    def fill(topic: str, records: int, size: int, requests: int) -> Prepare:
        def prepare(broker: BrokerProcess) -> None:
            shape = {"create": True, "records": records, "size": size, "conns": 2}
            generators.rawload(broker, topic, requests=requests, **shape)

        return prepare

    def fetch(topic: str, maxbytes: int, offsets: int, conns: int, inflight: int) -> Measure:
        def measure(broker: BrokerProcess) -> Sample:
            asked = {"mode": "fetch", "maxbytes": maxbytes, "offsets": offsets}
            flags = {"conns": conns, "inflight": inflight, "seconds": seconds, "warmup": 0.3}
            return generators.rawload(broker, topic, **asked, **flags)

        return measure

    rate = Figure("requests_per_s", "requests/s", at_least(1.5))
    cpu = Figure("broker_cpu_us_per_request", "broker CPU us/request", at_most(0.5))
    latency = (
        Figure("p50_us", "p50 us", at_most(0.6)),
        Figure("p99_us", "p99 us"),
        Figure("broker_cpu_us_per_request", "broker CPU us/request", at_most(0.5)),
    )
    batch_rate = Figure("mb_per_s", "MB/s", at_least(1.5))
    batch_cpu = Figure("broker_cpu_ms_per_mb", "broker CPU ms/MB", at_most(0.5))
    fetch_cpu = Figure("broker_cpu_us_per_request", "broker CPU us/request")
    return [
        Load("produce 1 x 100 B, 4 connections, 5 in flight", "produce", (rate, cpu), pipelined),
        Load("produce 1 x 100 B, one at a time", "produce", latency, one_at_a_time),
        Load(
            "produce 60 x 1 KB, 2 connections",
            "batches",
            (batch_rate, batch_cpu),
            batches(60, 1_000),
            bytes_written=effort.batch_requests * 60_000,
        ),
        Load(
            "produce 600 x 100 B, 2 connections",
            "batches",
            (batch_rate, batch_cpu),
            batches(600, 100),
            bytes_written=effort.batch_requests * 60_000,
        ),
        Load(
            "fetch 1 MB",
            "fetch",
            (Figure("requests_per_s", "requests/s", at_least(0.9)), fetch_cpu),
            fetch("fetch-big", 1 << 20, FETCH_BIG_REQUESTS * 60 - 1_200, 2, 2),
            fill("fetch-big", 60, 1_000, FETCH_BIG_REQUESTS),
        ),
        Load(
            "fetch 1 KB",
            "fetch",
            (Figure("requests_per_s", "requests/s", at_least(2.0)), fetch_cpu),
            fetch("fetch-small", 1_024, FETCH_SMALL_REQUESTS, 4, 3),
            fill("fetch-small", 1, 1_000, FETCH_SMALL_REQUESTS),
        ),
    ]


def client_loads(effort: Effort, *, by_group: bool) -> list[Load]:
    """Loads 5 and 6: real clients, which spend more than a broker does."""
    loads: list[Load] = []
    figures = (
        Figure("records_per_s", "records/s", at_least(1.0)),
        Figure("cpu_ms_per_mb", "broker CPU ms/MB"),
    )
    for size in effort.client_sizes:
        records = effort.client_bytes // size
        loads += _librdkafka_loads(size, records, figures)
        loads += _java_loads(size, effort, figures, by_group=by_group)
    loads.append(_java_latency(effort))
    return sorted(loads, key=lambda load: load.group != "librdkafka")


def _size_name(size: int) -> str:
    return f"{size} B" if size < 1_000 else f"{size // 1_000} KB"


def _librdkafka_loads(size: int, records: int, figures: tuple[Figure, ...]) -> list[Load]:
    tool, topic = generators.librdkafka_name(), f"librdkafka-{size}"

    def prepare(broker: BrokerProcess) -> None:
        with broker.connect() as connection:
            connection.create_topic(topic)
        generators.librdkafka_produce(broker, topic, records, size)

    def produce(broker: BrokerProcess) -> Sample:
        return generators.librdkafka_produce(broker, topic, records, size)

    def consume(broker: BrokerProcess) -> Sample:
        return generators.librdkafka_consume(broker, topic, records, size)

    label, written = f"{tool} {{}} {_size_name(size)}", records * size
    return [
        Load(
            label.format("produce"), "librdkafka", figures, produce, prepare, bytes_written=written
        ),
        Load(label.format("consume"), "librdkafka", figures, consume),
    ]


def _java_latency(effort: Effort) -> Load:
    topic = "java-latency"

    def prepare(broker: BrokerProcess) -> None:
        with broker.connect() as connection:
            connection.create_topic(topic)

    def measure(broker: BrokerProcess) -> Sample:
        return generators.java_latency(broker, topic, effort.latency_records)

    figure = Figure("latency_ms", "mean ms", at_most(1.0))
    return Load("EndToEndLatency 100 B", "java", (figure,), measure, prepare, is_slow=True)


def _java_loads(
    size: int, effort: Effort, figures: tuple[Figure, ...], *, by_group: bool
) -> list[Load]:
    written_topic, read_topic = f"java-{size}", f"java-read-{size}"
    records, read = effort.client_bytes // size, effort.java_bytes // size

    def prepare(broker: BrokerProcess) -> None:
        with broker.connect() as connection:
            connection.create_topic(written_topic)

    def produce(broker: BrokerProcess) -> Sample:
        return generators.java_produce(broker, written_topic, records, size)

    def fill(broker: BrokerProcess) -> None:
        """In batches as a Java producer makes them by default."""
        batch = max(1, JAVA_BATCH_BYTES // size)
        shape = {"create": True, "records": batch, "size": size, "conns": 2}
        generators.rawload(broker, read_topic, requests=read // batch + 1, **shape)

    def consume(broker: BrokerProcess) -> Sample:
        return generators.java_consume(broker, read_topic, read, size, by_group=by_group)

    consumer = "ConsumerPerformance" if by_group else "Java assign()"
    kind, written = _size_name(size), records * size
    return [
        Load(
            f"ProducerPerformance {kind}",
            "java",
            figures,
            produce,
            prepare,
            is_slow=True,
            bytes_written=written,
        ),
        Load(f"{consumer} {kind}", "java", figures, consume, fill),
    ]
