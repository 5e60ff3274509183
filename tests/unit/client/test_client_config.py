"""Kafka's client properties as one value."""

import pickle
import ssl

import pytest

from ottla.client import Address, ClientConfig
from ottla.client.connection import _tls_context
from ottla.protocol.errors import ErrorCode, KafkaError


def config(**properties: str) -> ClientConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return ClientConfig.from_properties({"bootstrap.servers": "a:1", **named})


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a , b:9999 ", [("a", 9092), ("b", 9999)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
        ("[::1]:9000,[fe80::1]", [("::1", 9000), ("fe80::1", 9092)]),
    ],
)
def test_bootstrap_servers(text: str, addresses: list[tuple[str, int]]) -> None:
    assert list(ClientConfig.of(text).bootstrap_servers) == [Address(*a) for a in addresses]


@pytest.mark.parametrize("text", ["", " ,", "a:b", "a:0", "a:70000", ":9"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(KafkaError, match="bootstrap"):
        ClientConfig.of(text)


def test_it_is_the_same_after_pickling() -> None:
    made = config(isolation_level="read_committed", fetch_max_wait_ms="7", not_ours="x")
    assert pickle.loads(pickle.dumps(made)) == made
    assert (made.is_read_committed, made.fetch_wait_ms, made.unused) == (True, 7, ("not.ours",))
    assert hash(made) == hash(pickle.loads(pickle.dumps(made)))


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"fetch_max_wait_ms": "soon"}, "not a number"),
        ({"max_partition_fetch_bytes": "0"}, "less than 1"),
        ({"isolation_level": "dirty"}, "isolation.level"),
        ({"security_protocol": "HTTPS"}, "security.protocol"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "GSSAPI"),
        ({"security_protocol": "SASL_SSL"}, "needs a user"),
        ({"ssl_truststore_location": "/a.jks"}, "export it as PEM"),
        ({"ssl_keystore_location": "/a", "ssl_keystore_type": "PKCS12"}, "export it as PEM"),
        ({"check_crcs": "maybe"}, "check.crcs"),
        ({"ssl_keystore_key": "-----BEGIN"}, "write the PEM to a file"),
        ({"ssl_keystore_certificate_chain": "-----BEGIN"}, "write the PEM to a file"),
        ({"ssl_truststore_lcoation": "/a.pem"}, "ssl.truststore.lcoation is not a property"),
        ({"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "ssl.cipher.suites"),
        ({"sasl_login_callback_handler_class": "com.x.Y"}, "a Java class"),
        ({"sasl_pasword": "x"}, "sasl.pasword"),
        ({"ssl_enabled_protocols": "TLSv1.1,TLSv1.2"}, "TLSv1.2, TLSv1.3"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as caught:
        config(**properties)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_jaas_line_gives_user_and_password() -> None:
    made = config(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config="org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="a \\"b\\" c";',
        ssl_endpoint_identification_algorithm="",
    )
    assert (made.sasl_username, made.sasl_password) == ("alice", 'a "b" c')
    assert made.is_tls
    assert made.is_sasl
    assert not made.ssl_checks_host_name


def test_what_only_java_knows_has_no_effect_and_is_not_called_unknown() -> None:
    made = config(max_poll_records="5", sasl_kerberos_service_name="k", isolation_levle="x")
    assert made.unused == ("isolation.levle",)


def test_tls_versions_are_obeyed() -> None:
    assert config().ssl_protocols == ("TLSv1.2", "TLSv1.3")
    context = _tls_context(config(ssl_enabled_protocols=" TLSv1.3"))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
