"""A fingerprint of everything a simulation decided, in order.

Two runs of one seed have to take the same decisions; the fingerprint tells cheaply whether
they did, in one process and across interpreters with different string hashing.
"""

import hashlib


class Trace:
    __slots__ = ("_digest", "decisions")

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.decisions = 0

    def note(self, line: str) -> None:
        self.decisions += 1
        self._digest.update(line.encode())
        self._digest.update(b"\n")

    def hexdigest(self) -> str:
        return self._digest.hexdigest()
