"""How to reach a cluster: Kafka's client properties as one value that can be pickled. Pure.

Names are those of Apache Kafka's Java clients, so that what works there works here. The truststore
and keystore must be PEM: Java's own formats cannot be read without Java. What this client cannot do
is refused when the configuration is made, not when the first broker is asked; of `ssl.*` and
`sasl.*` that is whatever it does not know, because what is ignored there weakens silently.

Properties that concern only parts of the Java client that do not exist here have no effect. What
not even the Java client knows is listed in `unused`, so that a caller can say so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError

PORT_DEFAULT = 9092
REQUEST_TIMEOUT_MS = 30_000  # Kafka's default of request.timeout.ms
API_TIMEOUT_MS = 60_000  # Kafka's default of default.api.timeout.ms
CONNECT_TIMEOUT_MS = 10_000  # Kafka's default of socket.connection.setup.timeout.ms
RETRY_BACKOFF_MS = 100
RETRY_BACKOFF_MS_MAX = 1_000
METADATA_AGE_MS_MAX = 300_000  # Kafka's default of metadata.max.age.ms
PARTITION_FETCH_BYTES = 1 << 20  # Kafka's default of max.partition.fetch.bytes
FETCH_BYTES = 50 << 20  # Kafka's default of fetch.max.bytes
FETCH_WAIT_MS = 500
RESPONSE_BYTES_MAX = 1 << 30  # a stranger's port may claim any length; one batch may be large

# Of Java's consumers, producers and admin clients; without effect here.
_JAVA_ONLY = """
acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter
auto.offset.reset batch.size bootstrap.controllers buffer.memory client.dns.lookup
compression.gzip.level compression.lz4.level compression.type compression.zstd.level
config.providers connections.max.idle.ms delivery.timeout.ms enable.auto.commit
enable.idempotence enable.metrics.push exclude.internal.topics group.id group.instance.id
group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes key.deserializer
key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection max.poll.interval.ms
max.poll.records max.request.size metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
metrics.sample.window.ms partition.assignment.strategy partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys
reconnect.backoff.max.ms reconnect.backoff.ms retries sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
session.timeout.ms share.acknowledgement.mode socket.connection.setup.timeout.max.ms
ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm transaction.timeout.ms transaction.two.phase.commit.enable
transactional.id value.deserializer value.serializer
"""
_PEM_INLINE = ("ssl.keystore.key", "ssl.keystore.certificate.chain")
_TLS_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Every setting that this client obeys."""

    bootstrap_servers: tuple[Address, ...]
    client_id: str = "ottla"
    client_rack: str = ""
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    api_timeout_ms: int = API_TIMEOUT_MS
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    retry_backoff_ms_max: int = RETRY_BACKOFF_MS_MAX
    metadata_age_ms_max: int = METADATA_AGE_MS_MAX
    partition_fetch_bytes: int = PARTITION_FETCH_BYTES
    fetch_bytes: int = FETCH_BYTES
    fetch_bytes_min: int = 1
    fetch_wait_ms: int = FETCH_WAIT_MS
    is_read_committed: bool = False
    check_crcs: bool = True
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str = ""
    sasl_password: str = ""
    ssl_ca_location: str = ""
    ssl_ca_pem: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = ""
    ssl_checks_host_name: bool = True
    ssl_protocols: tuple[str, ...] = _TLS_PROTOCOLS
    unused: tuple[str, ...] = ()

    @property
    def is_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def is_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    @classmethod
    def of(cls, bootstrap_servers: str, **properties: str) -> "ClientConfig":
        """A configuration from `host:port,...` and properties spelled with underscores."""
        named = {name.replace("_", "."): value for name, value in properties.items()}
        return cls.from_properties({"bootstrap.servers": bootstrap_servers, **named})

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "ClientConfig":
        """A configuration from Kafka's client properties; KafkaError(INVALID_CONFIG) if refused."""
        left = dict(properties)
        if not left.get("bootstrap.servers", "").strip():
            raise _refused("bootstrap.servers is not set")
        fields: dict[str, object] = {
            "bootstrap_servers": parse_addresses(left.pop("bootstrap.servers"))
        }
        for name, field in _TEXTS.items():
            if name in left:
                fields[field] = left.pop(name)
        for name, (field, lowest) in _NUMBERS.items():
            if name in left:
                fields[field] = _number(name, left.pop(name), lowest)
        _take_security(left, fields)
        level = left.pop("isolation.level", _ISOLATION_LEVELS[0]).lower()
        if level not in _ISOLATION_LEVELS:
            raise _refused(f"isolation.level is '{level}', not one of {_ISOLATION_LEVELS}")
        fields["is_read_committed"] = level == "read_committed"
        checks = left.pop("check.crcs", "true").lower()
        if checks not in ("true", "false"):
            raise _refused(f"check.crcs is '{checks}', not true or false")
        fields["check_crcs"] = checks == "true"
        unknown = sorted(left.keys() - set(_JAVA_ONLY.split()))
        for name in unknown:
            if name.startswith(("ssl.", "sasl.")):
                raise _refused(_why_unknown(name))
        return cls(**fields, unused=tuple(unknown))  # type: ignore[arg-type]  # by the tables


_TEXTS = {
    "client.id": "client_id",
    "client.rack": "client_rack",
    "sasl.username": "sasl_username",
    "sasl.password": "sasl_password",
    "ssl.ca.location": "ssl_ca_location",
    "ssl.ca.pem": "ssl_ca_pem",
    "ssl.truststore.certificates": "ssl_ca_pem",
    "ssl.key.password": "ssl_key_password",
    "ssl.certificate.location": "ssl_certificate_location",
    "ssl.key.location": "ssl_key_location",
}
_NUMBERS = {
    "request.timeout.ms": ("request_timeout_ms", 1),
    "default.api.timeout.ms": ("api_timeout_ms", 1),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", 1),
    "retry.backoff.ms": ("retry_backoff_ms", 0),
    "retry.backoff.max.ms": ("retry_backoff_ms_max", 0),
    "metadata.max.age.ms": ("metadata_age_ms_max", 0),
    "max.partition.fetch.bytes": ("partition_fetch_bytes", 1),
    "fetch.max.bytes": ("fetch_bytes", 1),
    "fetch.min.bytes": ("fetch_bytes_min", 0),
    "fetch.max.wait.ms": ("fetch_wait_ms", 0),
    "receive.buffer.bytes": ("receive_buffer_bytes", -1),
    "send.buffer.bytes": ("send_buffer_bytes", -1),
}


PROPERTIES: frozenset[str] = frozenset(
    {
        "bootstrap.servers",
        "check.crcs",
        "group.id",
        "isolation.level",
        "sasl.jaas.config",
        "sasl.mechanism",
        "security.protocol",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.type",
        *_TEXTS,
        *_NUMBERS,
    }
)
"""The properties that have a meaning here."""


def parse_addresses(text: str) -> tuple[Address, ...]:
    """The addresses of `host:port,...`; a port may be left out, an IPv6 host is in brackets."""
    addresses = []
    for piece in text.split(","):
        given = piece.strip().rpartition("://")[2]
        if not given:
            continue
        host, colon, port = given.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = given, str(PORT_DEFAULT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise _refused(f"bootstrap.servers has '{piece.strip()}', which is not host:port")
        addresses.append(Address(host, int(port)))
    if not addresses:
        raise _refused("bootstrap.servers names no broker")
    return tuple(addresses)


def _take_security(left: dict[str, str], fields: dict[str, object]) -> None:
    protocol = left.pop("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise _refused(f"security.protocol is '{protocol}', not one of {', '.join(_PROTOCOLS)}")
    fields["security_protocol"] = protocol
    mechanism = left.pop("sasl.mechanism", left.pop("sasl.mechanisms", "PLAIN")).upper()
    jaas = left.pop("sasl.jaas.config", "")
    if protocol.startswith("SASL_"):
        if mechanism not in _MECHANISMS:
            raise _refused(
                f"sasl.mechanism {mechanism} is not supported; use one of {', '.join(_MECHANISMS)}"
            )
        fields["sasl_mechanism"] = mechanism
        if jaas:
            fields["sasl_username"] = _jaas_option(jaas, "username")
            fields["sasl_password"] = _jaas_option(jaas, "password")
        if not fields.get("sasl_username"):
            raise _refused(
                "SASL needs a user: set sasl.jaas.config, or sasl.username and sasl.password"
            )
    _take_stores(left, fields)
    algorithm = left.pop("ssl.endpoint.identification.algorithm", "https").strip().lower()
    fields["ssl_checks_host_name"] = algorithm not in ("", "none")
    enabled = left.pop("ssl.enabled.protocols", ",".join(_TLS_PROTOCOLS)).split(",")
    fields["ssl_protocols"] = protocols = tuple(sorted(name.strip() for name in enabled))
    if not protocols or not set(protocols) <= set(_TLS_PROTOCOLS):
        raise _refused(
            f"ssl.enabled.protocols is '{','.join(protocols)}', not of {', '.join(_TLS_PROTOCOLS)}"
        )


def _take_stores(left: dict[str, str], fields: dict[str, object]) -> None:
    for store in ("truststore", "keystore"):
        kind = left.pop(f"ssl.{store}.type", "PEM").upper()
        location = left.pop(f"ssl.{store}.location", "")
        left.pop(f"ssl.{store}.password", "")
        if location and (kind != "PEM" or location.endswith((".jks", ".p12", ".pfx"))):
            raise _refused(
                f"ssl.{store}.location is a {kind} store, which only Java reads; export it as PEM "
                f"and set ssl.{store}.type=PEM"
            )
        if location and store == "truststore":
            fields["ssl_ca_location"] = location
        elif location:
            fields["ssl_certificate_location"] = location


def _jaas_option(jaas: str, name: str) -> str:
    """The value of `name="..."` in a JAAS line; quotes inside are escaped by a backslash."""
    _, found, rest = jaas.partition(f"{name}=")
    if not found:
        raise _refused(f"sasl.jaas.config names no {name}")
    if not rest.startswith('"'):
        return rest.split()[0].rstrip(";") if rest.split() else ""
    value, is_escaped = "", False
    for character in rest[1:]:
        if character == '"' and not is_escaped:
            return value
        if character == "\\" and not is_escaped:
            is_escaped = True
            continue
        value, is_escaped = value + character, False
    raise _refused(f"sasl.jaas.config does not close the quotes of {name}")


def _number(name: str, text: str, lowest: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise _refused(f"{name} is '{text}', not a number") from None
    if value < lowest:
        raise _refused(f"{name} is {value}, less than {lowest}")
    return value


def _why_unknown(name: str) -> str:
    if name in _PEM_INLINE:
        return f"{name} is not read; write the PEM to a file and name it by ssl.keystore.location"
    if name.endswith(".class"):
        return f"{name} names a Java class, which cannot run here"
    return f"{name} is not a property that can be obeyed here; leave it out"


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)
