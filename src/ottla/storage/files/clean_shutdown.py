"""`.kafka_cleanshutdown`: this log directory was closed in order, so no log needs recovery.

It carries the epoch in which the broker stopped, which it shows the controller when it
registers again: the controller then knows that no record was lost with a page cache (KIP-966).
Pure.
"""

import json

FILE_NAME = ".kafka_cleanshutdown"
VERSION = 0


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    content = {"version": VERSION, "brokerEpoch": broker_epoch}
    return json.dumps(content, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int | None:
    """The broker epoch; None if the file does not tell, which older versions' do not.

    The file's being there is what says that the shutdown was clean.
    """
    try:
        content = json.loads(data)
    except ValueError:
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) else None
