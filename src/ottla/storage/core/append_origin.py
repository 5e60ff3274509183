"""Who hands records to a log, which says how far they are to be trusted. Pure."""

from enum import Enum, auto


class AppendOrigin(Enum):
    CLIENT = auto()  # checked in full
    COORDINATOR = auto()  # group and transaction coordinators: epochs are checked, not sequences
    RAFT_LEADER = auto()
    REPLICATION = auto()  # the leader has checked it; a follower takes what it is given
