"""A client made of one socket: sends any bytes, so that tests can say what no real client would."""

import socket
from collections.abc import Mapping
from struct import pack, unpack
from typing import Any

from ottla.protocol.api import ApiKey
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.messages import decode_response, encode_request


class Wire:
    def __init__(self, bootstrap: str, timeout_seconds: float = 20.0) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_seconds)
        self.correlation_id = 0

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, body: bytes) -> None:
        self.socket.sendall(pack(">i", len(body)) + body)

    def receive(self) -> bytes | None:
        """The next frame, or None if the broker closed the connection."""
        head = self._exactly(4)
        return None if head is None else self._exactly(unpack(">i", head)[0])

    def is_closed_by_peer(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def ask(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        self.correlation_id += 1
        self.send(encode_request(key, version, self.correlation_id, "wire", fields))
        frame = self.receive()
        if frame is None:
            raise ConnectionError("the broker closed the connection")
        correlation_id, entity = decode_response(key, version, memoryview(frame))
        if correlation_id != self.correlation_id:
            raise AssertionError(f"answer {correlation_id} to request {self.correlation_id}")
        return entity

    def produce(
        self,
        topic: str,
        batch: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
    ) -> Any:
        """The answer for the one partition."""
        response = self.ask(
            ApiKey.PRODUCE,
            version,
            {
                "transactional_id": None,
                "acks": acks,
                "timeout": 10_000,
                "topic_data": [
                    {
                        "name": topic,
                        "partition_data": [{"index": partition, "records": batch}],
                    }
                ],
            },
        )
        return response.responses[0].partition_responses[0]

    def _exactly(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            try:
                piece = self.socket.recv(min(size - len(parts), 1 << 20))
            except ConnectionError:
                return None
            if not piece:
                return None
            parts += piece
        return bytes(parts)


def batch_of(*values: bytes, timestamp_ms: int, **more: Any) -> bytearray:
    return build_batch(
        [Record(offset, timestamp_ms, None, value) for offset, value in enumerate(values)], **more
    )
