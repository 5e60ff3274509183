"""SCRAM against the example of RFC 7677, and servers that cannot prove themselves."""

import pytest

from ottla.client.authentication import Scram
from ottla.protocol.errors import KafkaError

SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
PROOF = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange() -> Scram:
    return Scram("SCRAM-SHA-256", b"user", b"pencil", "rOprNGfwEbeRWgbNEkqO")


def test_the_example_of_rfc_7677() -> None:
    scram = exchange()
    assert scram.first_message() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.final_message(SERVER_FIRST) == PROOF
    scram.check_server(SERVER_FINAL)


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (SERVER_FIRST.replace(b"4096", b"1"), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"999999999999"), "iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx", "not one of SCRAM"),
        (SERVER_FIRST.replace(b"s=W22", b"s=!!!"), "not one of SCRAM"),
    ],
)
def test_a_challenge_that_is_wrong_is_refused(challenge: bytes, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason):
        exchange().final_message(challenge)


@pytest.mark.parametrize("final", [b"v=AAAA", b"", b"e=invalid-proof"])
def test_a_server_that_does_not_know_the_password_is_refused(final: bytes) -> None:
    scram = exchange()
    scram.final_message(SERVER_FIRST)
    with pytest.raises(KafkaError):
        scram.check_server(final)


def test_commas_and_equals_signs_in_names_are_escaped() -> None:
    assert Scram("SCRAM-SHA-512", b"a,b=c", b"", "n").first_message() == b"n,,n=a=2Cb=3Dc,r=n"
