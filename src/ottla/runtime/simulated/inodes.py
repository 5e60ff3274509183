"""What a simulated disk holds: what programs see, and what a power cut would leave. Pure.

Each file and directory keeps two states. The visible one changes with every call. The durable
one changes with `sync` and `sync_dir` only; between the two lies the list of changes that are
still on their way, of which a power cut keeps whatever the seed says: none, all, the first
few, any subset, and of a single write any of its sectors.

Names follow the weakest promise of POSIX: syncing a file does not save its name, and changes
of names may reach the platter in any order, except that a rename is never half done.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

# What a disk writes at once, whatever else happens.
SECTOR_BYTES = 512


class Survival(Enum):
    """What a power cut leaves of one file's changes that were not synced."""

    NOTHING = auto()
    EVERYTHING = auto()
    PREFIX = auto()  # in order, the last one torn
    SUBSET = auto()  # in no order, each possibly torn


@dataclass(slots=True)
class Write:
    offset: int
    data: bytes


@dataclass(slots=True)
class Truncate:
    size: int


Change = Write | Truncate


@dataclass(slots=True, eq=False)
class FileNode:
    visible: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    mtime_ms: int = 0

    def change(self, change: Change) -> None:
        _apply(self.visible, change)
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def lose_pending(self, rng: random.Random, survival: Survival | None = None) -> None:
        """Decide what of the pending changes reaches the platter; the rest never will."""
        if self.pending:
            kept = _survivors(self.pending, rng, survival or rng.choice(list(Survival)))
            for change in kept:
                _apply(self.durable, change, rng)
            self.pending.clear()

    def lose_power(self, rng: random.Random, survival: Survival | None = None) -> None:
        self.lose_pending(rng, survival)
        self.visible = bytearray(self.durable)


@dataclass(slots=True, eq=False)
class DirectoryNode:
    visible: "dict[str, Node]" = field(default_factory=dict)
    durable: "dict[str, Node]" = field(default_factory=dict)
    mtime_ms: int = 0


Node = FileNode | DirectoryNode


@dataclass(slots=True)
class NameEffect:
    directory: DirectoryNode
    name: str
    node: Node | None  # None: the name is gone


@dataclass(slots=True, eq=False)
class NameChange:
    """A creation, removal or rename: all of its effects, or none."""

    effects: list[NameEffect]

    def apply(self, *, durably: bool) -> None:
        for effect in self.effects:
            names = effect.directory.durable if durably else effect.directory.visible
            if effect.node is None:
                names.pop(effect.name, None)
            else:
                names[effect.name] = effect.node


class Names:
    """The directory tree, and the changes of names that no sync_dir has saved yet."""

    def __init__(self) -> None:
        self.root = DirectoryNode()
        self._pending: list[NameChange] = []

    def change(self, *effects: NameEffect) -> None:
        change = NameChange(list(effects))
        change.apply(durably=False)
        self._pending.append(change)

    def sync(self, directory: DirectoryNode) -> None:
        """Save the names of one directory, and the earlier changes that those build upon."""
        saved: list[NameChange] = []
        touched: set[tuple[int, str]] = set()
        for change in reversed(self._pending):
            keys = {(id(effect.directory), effect.name) for effect in change.effects}
            if touched & keys or any(e.directory is directory for e in change.effects):
                touched |= keys
                saved.append(change)
        for change in reversed(saved):
            change.apply(durably=True)
            self._pending.remove(change)

    def lose_power(self, rng: random.Random, survival: Survival | None = None) -> None:
        mode = survival or rng.choice(list(Survival))
        kept = self._pending
        if mode is Survival.NOTHING:
            kept = []
        elif mode is Survival.PREFIX:
            kept = kept[: rng.randint(0, len(kept))]
        elif mode is Survival.SUBSET:
            kept = [change for change in kept if rng.random() < 0.5]
        for change in kept:
            change.apply(durably=True)
        self._pending.clear()
        for directory in self.directories():
            directory.visible = dict(directory.durable)

    def directories(self) -> Iterable[DirectoryNode]:
        """Every directory that the durable tree reaches."""
        waiting = [self.root]
        while waiting:
            directory = waiting.pop()
            yield directory
            waiting.extend(n for n in directory.durable.values() if isinstance(n, DirectoryNode))

    def files(self) -> Iterable[FileNode]:
        for directory in self.directories():
            for _, node in sorted(directory.durable.items()):
                if isinstance(node, FileNode):
                    yield node


def _apply(content: bytearray, change: Change, rng: random.Random | None = None) -> None:
    if isinstance(change, Truncate):
        if change.size <= len(content):
            del content[change.size :]
        else:
            content.extend(bytes(change.size - len(content)))
        return
    gap = change.offset - len(content)
    if gap > 0:
        # A hole whose data never came: file systems leave zeros, worn disks leave anything.
        is_garbage = rng is not None and rng.random() < 0.3
        content.extend(rng.randbytes(gap) if rng is not None and is_garbage else bytes(gap))
    content[change.offset : change.offset + len(change.data)] = change.data


def _survivors(pending: list[Change], rng: random.Random, survival: Survival) -> list[Change]:
    if survival is Survival.NOTHING:
        return []
    if survival is Survival.EVERYTHING:
        return list(pending)
    if survival is Survival.PREFIX:
        kept = rng.randint(0, len(pending))
        whole = list(pending[:kept])
        return whole + (_torn(pending[kept], rng) if kept < len(pending) else [])
    survivors: list[Change] = []
    for change in pending:
        fate = rng.random()
        if fate < 0.4:
            survivors.append(change)
        elif fate < 0.7:
            survivors.extend(_torn(change, rng))
    return survivors


def _torn(change: Change, rng: random.Random) -> list[Change]:
    """Some sectors of a write: a prefix, or any of them."""
    if isinstance(change, Truncate):
        return []
    sectors = list(_sectors(change))
    if rng.random() < 0.5:
        return list(sectors[: rng.randint(0, len(sectors))])
    return [sector for sector in sectors if rng.random() < 0.5]


def _sectors(write: Write) -> Iterable[Write]:
    """The write cut where the file's sectors end."""
    start = 0
    while start < len(write.data):
        position = write.offset + start
        end = min(len(write.data), start + SECTOR_BYTES - position % SECTOR_BYTES)
        yield Write(position, write.data[start:end])
        start = end
