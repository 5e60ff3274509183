"""`.kafka_cleanshutdown`: this log directory was closed in order, so no log needs recovery.

It carries the epoch in which the broker stopped, which it shows the controller when it
registers again: the controller then knows that no record was lost with a page cache (KIP-966).
Pure.
"""

import msgspec

FILE_NAME = ".kafka_cleanshutdown"
VERSION = 0


class _Content(msgspec.Struct, rename="camel"):
    version: int
    broker_epoch: int | None = None


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return msgspec.json.encode(_Content(VERSION, broker_epoch))


def decode_clean_shutdown(data: bytes) -> int | None:
    """The broker epoch; None if the file does not tell, which older versions' do not.

    The file's being there is what says that the shutdown was clean.
    """
    try:
        return msgspec.json.decode(data, type=_Content).broker_epoch
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
