"""A drafter group in other processes, as the engine sees it: one more `Drafter`."""

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from paceline.config.schema import PeerConfig
from paceline.core.drafts import DraftOpening, DraftProposal, DraftReply, DraftRequest, NeedSync
from paceline.core.load import DrafterLoad
from paceline.drafting.matching import DrafterFacts, TargetFacts
from paceline.rpc.codec_link import decode_drafter_load, decode_reply
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.link_runner import LinkRunner
from paceline.rpc.link_sessions import LinkSessions, Outgoing
from paceline.rpc.link_transport import GrpcLinkTransport, LinkTransport
from paceline.rpc.protocol import spoken
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline.v1 import drafter_pb2

_SMOOTHING = 0.1  # weight of the newest reply time


class RemoteDrafter:
    """Talks to one randomly chosen replica of a group over one link. Implements `Drafter`.

    The engine's thread calls `open`, `request`, `collect` and `close`; only `collect` may wait. All
    encoding and sending happens on the asyncio loop. When the link breaks, rows without an answer are
    answered by NeedSync(0) as soon as another link is up, so the engine sends the whole context again.
    """

    def __init__(
        self,
        group: str,
        *,
        hello: TargetFacts,
        loop: asyncio.AbstractEventLoop,
        peer: PeerConfig,
        method: str = "",
        metrics: Metrics | None = None,
        transport: LinkTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """Start looking for a link at once; `set_endpoints` says where.

        ``method`` is reported until a drafter has said its own. ``peer`` gives the limits of messages.
        """
        self._group = group
        self._method = method
        self._loop = loop
        self._clock = clock
        self._metrics = metrics or Metrics()
        self._changed = threading.Condition()
        self._sessions = LinkSessions(hello.vocabulary.size)
        self._replies: list[DraftReply] = []
        self._live = False
        self._detail = "no replica"
        self._incarnation = ""
        self._facts: DrafterFacts | None = None
        self._load = DrafterLoad(0, 0, 0.0)
        self._reply_time_ms: float | None = None
        self._runner = LinkRunner(
            group,
            hello,
            self,
            transport or GrpcLinkTransport(peer),
            message_bytes=peer.max_message_bytes // 2,
            versions=spoken(peer.protocol_max),
            clock=clock,
            rng=rng,
        )
        self._running: Future[None] = asyncio.run_coroutine_threadsafe(self._runner.run(), loop)

    # For whoever runs the target: any thread.

    def set_endpoints(self, endpoints: Sequence[Endpoint]) -> None:
        """Replace the group's list of replicas."""
        self._on_loop(lambda: self._runner.set_endpoints(tuple(endpoints)))

    def shutdown(self) -> None:
        """Close the link for good; idempotent, does not wait."""
        self._on_loop(self._running.cancel)
        self.none_left("shut down")

    @property
    def incarnation(self) -> str:
        """Name of the drafter process behind the link; empty before the first one."""
        return self._incarnation

    @property
    def facts(self) -> DrafterFacts | None:
        """What the drafter behind the link, or the last one, said it is."""
        return self._facts

    @property
    def load(self) -> DrafterLoad:
        """Newest load report of the drafter."""
        return self._load

    @property
    def rtt_ms(self) -> float | None:
        """Mean time from a request to its answer, drafting included, newest weighted most; None before the first."""
        return self._reply_time_ms

    # For the engine's thread.

    @property
    def method(self) -> str:
        """Drafting method of the group."""
        return self._method

    @property
    def live(self) -> bool:
        """Whether a link is up."""
        return self._live

    @property
    def detail(self) -> str:
        """Why no link is up; names the field where a handshake was refused."""
        return self._detail

    def open(self, openings: Sequence[DraftOpening]) -> None:
        """Make sessions known; each travels with its first row."""
        with self._changed:
            self._sessions.open(openings)
            self._forget_replies({opening.session for opening in openings})

    def request(self, rows: Sequence[DraftRequest]) -> None:
        """Hand rows over for sending, all in one message."""
        with self._changed:
            self._forget_replies({row.session for row in rows}, proposals=False)
            self._replies.extend(self._sessions.request(rows, self._clock()))
        self._on_loop(self._runner.wake)

    def collect(self, timeout_s: float) -> list[DraftReply]:
        """Replies that are here; waits up to ``timeout_s`` while one can still be expected."""
        give_up_at = time.monotonic() + timeout_s
        with self._changed:
            while not self._replies and self._sessions.num_awaited(self._clock()):
                left_s = give_up_at - time.monotonic()
                if left_s <= 0 or not self._changed.wait(left_s):
                    break
            replies, self._replies = self._replies, []
        return replies

    @property
    def num_pending(self) -> int:
        """Rows whose answer is under way or not collected yet; none that are past their deadline."""
        with self._changed:
            return self._sessions.num_awaited(self._clock()) + len(self._replies)

    def close(self, sessions: Sequence[str]) -> None:
        """Drop sessions here and at the drafter."""
        with self._changed:
            self._sessions.close(sessions)
            self._forget_replies(set(sessions))
        self._on_loop(self._runner.wake)

    # For the link: the asyncio loop.

    def link_up(self, drafter: DrafterFacts, incarnation: str) -> None:
        """Start afresh with the drafter behind a new link."""
        self._metrics.count(catalogue.LINK_CONNECTS, 1, group=self._group)
        with self._changed:
            self._method, self._facts, self._incarnation = drafter.method, drafter, incarnation
            self._live, self._detail = True, ""
            self._replies.extend(self._sessions.link_up())
            self._changed.notify_all()

    def link_down(self, why: str) -> None:
        """Forget what the drafter knew."""
        self._metrics.count(catalogue.LINK_FAILURES, 1, group=self._group)
        self.none_left(why)

    def none_left(self, why: str) -> None:
        """Say that there is no drafter."""
        with self._changed:
            self._live, self._detail = False, why
            self._sessions.link_down()
            self._changed.notify_all()  # nothing will come: do not wait for it

    def take(self) -> Outgoing | None:
        """What is to be sent now."""
        with self._changed:
            return self._sessions.take(self._clock())

    def receive(self, message: drafter_pb2.LinkResponse) -> None:
        """Check the rows of a message and keep them for the engine."""
        self._load = decode_drafter_load(message.load)
        decoded = [reply for reply in map(decode_reply, message.rows) if reply is not None]
        with self._changed:
            for reply in decoded:
                self._admit(reply)
            self._changed.notify_all()

    def _admit(self, reply: DraftReply) -> None:
        admission = self._sessions.admit(reply, self._clock())
        if admission.waited_s is not None:
            self._note_reply_time(admission.waited_s)
        if admission.reply is not None:
            self._replies.append(admission.reply)
            self._metrics.count(catalogue.LINK_REPLIES, 1, group=self._group, kind=_kind(reply))
        else:
            self._metrics.count(catalogue.DROPPED_DRAFTS, 1, group=self._group, reason=admission.dropped or "invalid")

    def _forget_replies(self, sessions: set[str], *, proposals: bool = True) -> None:
        """Drop replies that were not collected; proposals only if told so, as they may still be re-rooted."""
        self._replies = [
            reply
            for reply in self._replies
            if reply.session not in sessions or (isinstance(reply, DraftProposal) and not proposals)
        ]

    def _note_reply_time(self, waited_s: float) -> None:
        self._metrics.observe(catalogue.LINK_REPLY_TIME, waited_s, group=self._group)
        newest, mean = waited_s * 1e3, self._reply_time_ms
        self._reply_time_ms = newest if mean is None else mean + _SMOOTHING * (newest - mean)

    def _on_loop(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the replica is going down
            self._loop.call_soon_threadsafe(call)


def _kind(reply: DraftReply) -> str:
    if isinstance(reply, DraftProposal):
        return "proposal"
    return "need_sync" if isinstance(reply, NeedSync) else "refused"
