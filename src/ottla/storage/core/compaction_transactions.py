"""Which batches of a log belong to aborted transactions, and when a marker may go.

Records of an aborted transaction are removed whatever their keys. A marker must outlive every
record of its transaction, or a reader would take aborted records for committed ones; so it
becomes removable in the first cleaning that meets none of them any more, and is then kept
for delete.retention.ms like a tombstone.

Pure. Batches must be shown in the order of their offsets, from the start of the log or of the
range that the aborted transactions were collected for.
"""

from collections.abc import Iterable

from ottla.protocol.batches import BatchHeader, ControlType
from ottla.storage.core.transaction_index import AbortedTransaction


class _Aborted:
    __slots__ = ("has_batches", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.has_batches = False


class CleanedTransactions:
    __slots__ = ("_aborted", "_next", "_ongoing_aborted", "_ongoing_committed", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda one: one.first_offset)
        self._next = 0
        self._ongoing_aborted: dict[int, _Aborted] = {}
        self._ongoing_committed: set[int] = set()
        # For the transaction index of the cleaned segment; whoever writes it empties the list.
        self.kept: list[AbortedTransaction] = []

    def on_data_batch(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        ongoing = self._ongoing_aborted.get(header.producer_id)
        if ongoing is None:
            self._ongoing_committed.add(header.producer_id)
            return False
        ongoing.has_batches = True
        return True

    def on_control_batch(self, header: BatchHeader, control_type: ControlType | None) -> bool:
        """Whether nothing is left of the transaction that the marker ends.

        `control_type` is None where an earlier cleaning has emptied the batch.
        """
        self._begin_up_to(header.last_offset)
        if control_type is None:
            return True
        if control_type is ControlType.ABORT:
            ongoing = self._ongoing_aborted.pop(header.producer_id, None)
            if ongoing is None or not ongoing.has_batches:
                return True
            self.kept.append(ongoing.transaction)
            return False
        if control_type is ControlType.COMMIT:
            if header.producer_id not in self._ongoing_committed:
                return True
            self._ongoing_committed.discard(header.producer_id)
        return False

    def _begin_up_to(self, offset: int) -> None:
        aborted = self._aborted
        while self._next < len(aborted) and aborted[self._next].first_offset <= offset:
            begun = aborted[self._next]
            self._next += 1
            self._ongoing_aborted.setdefault(begun.producer_id, _Aborted(begun))
