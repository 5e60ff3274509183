"""Which addresses a node listens on and tells others, out of the texts of its config. Pure.

A listener is written NAME://host:port. The name says nothing about encryption: the map from
names to security protocols does, and Kafka fills that map in for controller listeners when
it was left out. Ottla has PLAINTEXT only, so a listener of any other protocol is refused
here, where the sentence can still name the key, and not at the first handshake.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, NamedTuple

from ottla.config.definitions import PORT_MAX, SHOWN_CHARACTERS_MAX, ConfigError

NON_ROUTABLE_HOST: Final = "0.0.0.0"
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SUPPORTED_PROTOCOLS: Final = ("PLAINTEXT",)

_LISTENER: Final = re.compile(
    r"(?P<name>.*)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)", re.ASCII
)
_ENDPOINT: Final = re.compile(r"\[?(?P<host>[0-9a-zA-Z\-%._:]+?)\]?:(?P<port>[0-9]+)", re.ASCII)


HOST: Final = re.compile(r"[0-9a-zA-Z\-%._:]*", re.ASCII)


class Listener(NamedTuple):
    name: str
    host: str  # empty: every interface, or in what is advertised, the node's own name
    port: int  # 0: whichever the kernel gives
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class Endpoint(NamedTuple):
    host: str
    port: int


class Voter(NamedTuple):
    node_id: int
    host: str
    port: int


def parse_pairs(key: str, text: str) -> dict[str, str]:
    """`a:1,b:2` as a dict; the value is what follows the last colon, as an IPv6 host has more."""
    pairs: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, value = part.rpartition(":")
        if not colon:
            raise ConfigError(
                f"{key} must be a list of name:value pairs, not '{part[:SHOWN_CHARACTERS_MAX]}'"
            )
        pairs[name.strip()] = value.strip()
    return pairs


def security_protocols(
    map_text: str,
    *,
    is_given: bool,
    listener_texts: Iterable[str],
    controller_listener_names: Sequence[str],
) -> dict[str, str]:
    """The protocol of each listener name, with PLAINTEXT for controllers where none was given."""
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for name, protocol in parse_pairs(key, map_text).items():
        if protocol.upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"{key} must map '{name}' to one of {', '.join(SECURITY_PROTOCOLS)}, "
                f"not '{protocol[:SHOWN_CHARACTERS_MAX]}'"
            )
        protocols[name.upper()] = protocol.upper()
    if is_given:
        return protocols
    in_use = [*controller_listener_names, *(text.partition("://")[0] for text in listener_texts)]
    if not any(name in SECURITY_PROTOCOLS[1:] for name in in_use):
        for name in controller_listener_names:
            protocols.setdefault(name, "PLAINTEXT")
    return protocols


def parse_listeners(
    key: str, texts: Iterable[str], protocols: Mapping[str, str], *, distinct_ports: bool
) -> tuple[Listener, ...]:
    """The listeners in order; each name once and, on request, each port once."""
    listeners = tuple(_parse_listener(key, text, protocols) for text in texts)
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        raise ConfigError(f"{key} must give each listener a name of its own: {', '.join(names)}")
    if distinct_ports:
        _check_ports(key, listeners)
    return listeners


def _parse_listener(key: str, text: str, protocols: Mapping[str, str]) -> Listener:
    match = _LISTENER.fullmatch(text)
    shown = text[:SHOWN_CHARACTERS_MAX]
    if match is None or not match["name"] or int(match["port"][:7]) > PORT_MAX:
        raise ConfigError(f"{key} must be a list of NAME://host:port, not '{shown}'")
    name = match["name"].upper()
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(
            f"{key} names the listener {name}, which has no security protocol "
            "in listener.security.protocol.map"
        )
    if protocol not in SUPPORTED_PROTOCOLS:
        raise ConfigError(
            f"{key} asks for {protocol} on the listener {name}, "
            f"but Ottla speaks {' and '.join(SUPPORTED_PROTOCOLS)} only"
        )
    port = int(match["port"])
    if port < 0:
        raise ConfigError(f"{key} must give the listener {name} a port of 0 to {PORT_MAX}")
    return Listener(name, match["host"], port, protocol)


def _check_ports(key: str, listeners: tuple[Listener, ...]) -> None:
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port != 0:
            by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in by_port.items():
        if len(sharing) == 1:
            continue
        families = sorted(_family(listener.host) for listener in sharing)
        if families != [4, 6]:
            raise ConfigError(
                f"{key} gives port {port} to {' and '.join(item.name for item in sharing)}, which "
                "is possible only for one IPv4 and one IPv6 address"
            )


def _family(host: str) -> int:
    try:
        IPv4Address(host)
        return 4
    except AddressValueError:
        pass
    try:
        IPv6Address(host)
        return 6
    except AddressValueError:
        return 0


def parse_endpoint(key: str, text: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match["port"][:7]) > PORT_MAX:
        raise ConfigError(f"{key} must be a list of host:port, not '{text[:SHOWN_CHARACTERS_MAX]}'")
    return Endpoint(match["host"], int(match["port"]))


def parse_voter(text: str) -> Voter:
    key = "controller.quorum.voters"
    node_id, at, address = text.partition("@")
    if not at or not node_id.isascii() or not node_id.isdigit():
        raise ConfigError(
            f"{key} must be a list of id@host:port, not '{text[:SHOWN_CHARACTERS_MAX]}'"
        )
    endpoint = parse_endpoint(key, address)
    return Voter(int(node_id), endpoint.host, endpoint.port)
