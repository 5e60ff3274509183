"""One console: its connections, its sampler, its readers, and what it keeps between requests.

Shell; made once per process and handed to every page through the application's state.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from functools import partial

from ottla.console.browse import Readers
from ottla.console.digest import Digest
from ottla.console.kafka.brokers import Brokers, client_config
from ottla.console.kafka.changes import Changes
from ottla.console.kafka.group_questions import GroupQuestions
from ottla.console.kafka.model import GroupDescription
from ottla.console.kafka.questions import Questions
from ottla.console.kafka.transaction_questions import TransactionQuestions
from ottla.console.pipelines import read_pipelines
from ottla.console.producing import RecordProducer
from ottla.console.sampler import Sampler
from ottla.console.settings import ConsoleSettings
from ottla.console.tail import Tails

# How long a page may wait for the very first look at the cluster.
FIRST_LOOK_S = 5.0
# A description of a group is shared by the viewers of one moment.
DESCRIPTION_S = 1.5
DESCRIPTIONS_MAX = 256


class ConsoleContext:
    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.csrf_token = secrets.token_urlsafe(32)
        config = client_config(settings.client)
        self.brokers = Brokers(config)
        self.questions = Questions(self.brokers)
        self.groups = GroupQuestions(self.brokers)
        self.transactions = TransactionQuestions(self.brokers)
        self.changes = Changes(self.brokers, self.groups)
        self.sampler = Sampler(
            self.questions,
            self.groups,
            self.transactions,
            read_pipelines=partial(read_pipelines, settings.pipelines_directory),
            interval_s=settings.sample_interval_s,
        )
        self.readers = Readers(config)
        self.tails = Tails(config)
        self.producer = RecordProducer(settings.client)
        self._digest: Digest | None = None
        self._descriptions: dict[str, tuple[float, GroupDescription]] = {}

    async def start(self) -> None:
        self.sampler.start()

    async def stop(self) -> None:
        await self.sampler.stop()
        self.readers.close()
        self.brokers.close()

    async def ready(self) -> None:
        """Wait for the first look, but not for ever: a page can say that nobody answers."""
        if not self.sampler.looks:
            try:
                async with asyncio.timeout(FIRST_LOOK_S):
                    await self.sampler.next_look()
            except TimeoutError:
                return

    async def changed(self) -> None:
        """Something was changed through this console: show it on the next page."""
        try:
            async with asyncio.timeout(FIRST_LOOK_S):
                await self.sampler.look_again()
        except TimeoutError:
            return

    @property
    def digest(self) -> Digest:
        """The rows of the newest view."""
        sampler = self.sampler
        if self._digest is None or self._digest.view is not sampler.view:
            now_ms = int(time.time() * 1000)
            self._digest = Digest(sampler.view, sampler.figures, sampler.pipelines, now_ms)
        return self._digest

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Members and assignments, at most a moment old."""
        now = time.monotonic()
        known = self._descriptions.get(group_id)
        if known is not None and now - known[0] < DESCRIPTION_S:
            return known[1]
        described = await self.groups.describe(self.sampler.view.groups[group_id])
        if len(self._descriptions) >= DESCRIPTIONS_MAX:
            self._descriptions.clear()
        self._descriptions[group_id] = (now, described)
        return described
