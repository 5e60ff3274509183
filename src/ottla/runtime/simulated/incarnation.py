"""One life of one simulated node, from its start to its crash.

A killed process runs no `finally` block and no callback. Cancelling its tasks would do the
opposite: it would let a dying broker write a clean-shutdown marker. So every callback carries
the life it belongs to in its context, and the loop drops those whose life is over; whatever
code of a dead life still runs (a test holding on to one of its objects) finds that each call
to the outside world raises.
"""

from contextvars import ContextVar


class NodeDown(BaseException):
    """The node this code runs on is no more.

    Not an Exception: no handler inside the node may catch the end of its own process.
    """


class NodeCrashed(NodeDown):
    """The process was killed."""


class PowerCut(NodeDown):
    """The machine lost power."""


class Incarnation:
    __slots__ = ("cause", "node", "number")

    def __init__(self, node: str, number: int) -> None:
        self.node = node
        self.number = number
        self.cause: NodeDown | None = None

    def __repr__(self) -> str:
        return f"{self.node}#{self.number}"

    @property
    def is_alive(self) -> bool:
        return self.cause is None

    def check(self) -> None:
        """Raise if this life is over."""
        if self.cause is not None:
            raise type(self.cause)(f"{self!r} is down")


CURRENT: ContextVar[Incarnation | None] = ContextVar("ottla_simulated_incarnation", default=None)
