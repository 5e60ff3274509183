"""Which encoded Metadata answers are worth keeping until the image changes?

Clients repeat the same question, and encoding an answer costs far more than sending it again. But
questions come from strangers: answers are kept up to a sum of bytes, and not at all where the
question is long or names topics that are not there, which no client goes on asking for.

Owned by the event loop's thread. Invariant: `kept_bytes` is at most KEPT_BYTES_MAX.
"""

from typing import Final, NamedTuple
from uuid import UUID

from ottla.metadata.image import MetadataImage

# Ten thousand partitions take about half a megabyte; a few listeners and versions ask for them.
KEPT_BYTES_MAX: Final = 8 * 1024 * 1024
# What one client subscribes to. A longer list costs more to compare than is won.
ASKED_TOPICS_MAX: Final = 1000
# What a question costs beside its answer: a tuple, a text and an id for each topic, about.
QUESTION_BYTES_PER_TOPIC: Final = 300


class Question(NamedTuple):
    version: int
    listener: str
    topics: tuple[tuple[str | None, UUID], ...] | None  # None for all
    topic_operations: bool
    cluster_operations: bool


class MetadataAnswers:
    __slots__ = ("_encoded", "_image", "kept_bytes")

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._encoded: dict[Question, bytes] = {}
        self.kept_bytes = 0

    def get(self, image: MetadataImage, question: Question) -> bytes | None:
        """What was answered to this question while the image was the same."""
        if self._image is not image:
            self._image = image
            self._clear()
        return self._encoded.get(question)

    def maybe_keep(self, question: Question, encoded: bytes) -> None:
        """Remember an answer that names no error, if it is worth its room."""
        topics_count = len(question.topics or ())
        size = len(encoded) + QUESTION_BYTES_PER_TOPIC * (topics_count + 1)
        if topics_count > ASKED_TOPICS_MAX or size > KEPT_BYTES_MAX:
            return
        if self.kept_bytes + size > KEPT_BYTES_MAX:
            self._clear()
        self._encoded[question] = encoded
        self.kept_bytes += size

    def _clear(self) -> None:
        self._encoded.clear()
        self.kept_bytes = 0
