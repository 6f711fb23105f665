"""What a gateway and a target exchange, as records and as messages: the only translator of the stream."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from paceline.core.generation import (
    ChoiceStart,
    ChoiceStats,
    FinishReason,
    GenerationChunk,
    GenerationRequest,
    RoundTrace,
    TokenLogprob,
)
from paceline.core.load import DrafterGroupStatus, TargetLoad
from paceline.core.plans import Plan, Route
from paceline.errors import InvalidRequestError, TargetUnavailableError
from paceline.rpc.codec_link import SEED_MASK
from paceline.rpc.codec_sampling import decode_sampling, encode_sampling
from paceline.rpc.codec_versions import decode_versions, encode_versions
from paceline.rpc.protocol import OURS, Versions
from paceline.v1 import common_pb2, target_pb2

_ROUTES = {Route.PLAIN: target_pb2.ROUTE_PLAIN, Route.SPECULATIVE: target_pb2.ROUTE_SPECULATIVE}
_ROUTES_BACK = {value: route for route, value in _ROUTES.items()}
_FINISHES = {
    None: target_pb2.FINISH_REASON_UNSPECIFIED,
    FinishReason.STOP: target_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: target_pb2.FINISH_REASON_LENGTH,
    FinishReason.ABORT: target_pb2.FINISH_REASON_ABORT,
}
_FINISHES_BACK = {value: finish for finish, value in _FINISHES.items()}


class LoadReport(NamedTuple):
    """One report of a target replica. The fields with defaults are not there before version 2."""

    load: TargetLoad
    num_held: int  # requests whose hold or stream is open
    system_fingerprint: str
    uptime_s: float = 0.0  # of the replica when it made the report: tells how long reports travel; 0: not known
    draining: bool = False  # takes no new attempts and is about to go
    stalled_s: float = 0.0  # time since waiting work has last got on; small while it does, 0 where none waits


def agree(theirs: common_pb2.ProtocolRange, ours: Versions = OURS) -> int:
    """Version to speak with a gateway. Raises TargetUnavailableError, so that it tries another replica, if none is."""
    gateway = decode_versions(theirs)
    version = ours.shared_with(gateway)
    if version is None:
        raise TargetUnavailableError(f"the gateway speaks protocol {gateway}, the replica {ours}")
    return version


def encode_generation_request(request: GenerationRequest, ours: Versions = OURS) -> target_pb2.StreamRequest:
    """A request as a message; ``ours`` are the versions that the gateway speaks."""
    plan = request.plan
    return target_pb2.StreamRequest(
        protocol=encode_versions(ours),
        key=request.key,
        prompt_token_ids=request.prompt_token_ids,
        sampling=encode_sampling(request.sampling),
        seed=request.seed & SEED_MASK,
        plan=target_pb2.Plan(
            route=_ROUTES[plan.route],
            reason=plan.reason,
            drafter=plan.drafter or "",
            max_draft_token_count=plan.max_draft_tokens,
        ),
        choice_count=request.num_choices,
        explain=request.explain,
        tenant_salt=request.tenant_salt,
        traceparent=request.traceparent,
        resumed=[
            target_pb2.ChoiceStart(
                choice=start.choice, output_token_ids=start.output_token_ids, text_offset=start.text_offset
            )
            for start in request.resumed
        ],
        deadline_ms=0 if request.deadline_s is None else max(1, round(request.deadline_s * 1e3)),
    )


def decode_generation_request(message: target_pb2.StreamRequest) -> GenerationRequest:
    """A request from a message. Raises InvalidRequestError where a gateway cannot have meant it."""
    route = _ROUTES_BACK.get(message.plan.route)
    if route is None:
        raise InvalidRequestError("The plan has no route.", "plan.route")
    if not message.key or message.choice_count < 1 or not message.prompt_token_ids:
        raise InvalidRequestError("A request needs a key, a prompt and at least one choice.", "key")
    return GenerationRequest(
        key=message.key,
        prompt_token_ids=tuple(message.prompt_token_ids),
        sampling=decode_sampling(message.sampling),
        seed=message.seed,
        plan=Plan(route, message.plan.reason, message.plan.drafter or None, message.plan.max_draft_token_count),
        num_choices=message.choice_count,
        explain=message.explain,
        tenant_salt=message.tenant_salt,
        traceparent=message.traceparent,
        resumed=_decode_resumed(message),
        deadline_s=message.deadline_ms / 1e3 if message.deadline_ms > 0 else None,
    )


def _decode_resumed(message: target_pb2.StreamRequest) -> tuple[ChoiceStart, ...]:
    choices = [start.choice for start in message.resumed]
    if len(choices) != len(set(choices)) or not all(0 <= choice < message.choice_count for choice in choices):
        raise InvalidRequestError("A resume names a choice twice, or one that was not asked for.", "resumed")
    return tuple(
        ChoiceStart(start.choice, tuple(start.output_token_ids), start.text_offset) for start in message.resumed
    )


def encode_chunks(chunks: Sequence[GenerationChunk]) -> target_pb2.StreamResponse:
    """Chunks that got ready together as one message; the key stays with the call."""
    return target_pb2.StreamResponse(chunks=[_encode_chunk(chunk) for chunk in chunks])


def decode_chunks(key: str, message: target_pb2.StreamResponse) -> list[GenerationChunk]:
    """Chunks from a message of the call that carries the attempt ``key``."""
    return [_decode_chunk(key, chunk) for chunk in message.chunks]


def _encode_chunk(chunk: GenerationChunk) -> target_pb2.Chunk:
    return target_pb2.Chunk(
        choice=chunk.choice,
        first_index=chunk.first_index,
        token_ids=chunk.token_ids,
        text=chunk.text,
        text_offset=chunk.text_offset,
        logprobs=[_encode_logprob(entry) for entry in chunk.logprobs],
        rounds=[_encode_round(trace) for trace in chunk.rounds],
        finish_reason=_FINISHES[chunk.finish],
        stats=None if chunk.stats is None else _encode_stats(chunk.stats),
    )


def _decode_chunk(key: str, message: target_pb2.Chunk) -> GenerationChunk:
    return GenerationChunk(
        key=key,
        choice=message.choice,
        first_index=message.first_index,
        token_ids=tuple(message.token_ids),
        text=message.text,
        text_offset=message.text_offset,
        logprobs=tuple(
            TokenLogprob(entry.token_id, entry.logprob, tuple((top.token_id, top.logprob) for top in entry.top))
            for entry in message.logprobs
        ),
        rounds=tuple(_decode_round(trace) for trace in message.rounds),
        finish=_FINISHES_BACK.get(message.finish_reason),
        stats=_decode_stats(message.stats) if message.HasField("stats") else None,
    )


def _encode_logprob(entry: TokenLogprob) -> target_pb2.TokenLogprob:
    top = [target_pb2.TopLogprob(token_id=token_id, logprob=logprob) for token_id, logprob in entry.top]
    return target_pb2.TokenLogprob(token_id=entry.token_id, logprob=entry.logprob, top=top)


def _encode_round(trace: RoundTrace) -> target_pb2.RoundTrace:
    return target_pb2.RoundTrace(
        drafted_token_ids=trace.drafted,
        accepted_count=trace.accepted,
        target_token_id=trace.target_token,
        wait_ms=trace.wait_ms,
        draft_ms=trace.draft_ms,
        verify_ms=trace.verify_ms,
        parents=trace.parents,
        accepted_path=trace.path,
    )


def _decode_round(message: target_pb2.RoundTrace) -> RoundTrace:
    return RoundTrace(
        drafted=tuple(message.drafted_token_ids),
        accepted=message.accepted_count,
        target_token=message.target_token_id if message.HasField("target_token_id") else None,
        wait_ms=message.wait_ms,
        draft_ms=message.draft_ms,
        verify_ms=message.verify_ms,
        parents=tuple(message.parents),
        path=tuple(message.accepted_path),
    )


def _encode_stats(stats: ChoiceStats) -> target_pb2.ChoiceStats:
    return target_pb2.ChoiceStats(
        prompt_token_count=stats.prompt_tokens,
        completion_token_count=stats.completion_tokens,
        round_count=stats.rounds,
        drafted_count=stats.drafted,
        tested_count=stats.tested,
        accepted_count=stats.accepted,
        drafter=stats.drafter or "",
        switch_count=stats.switches,
        replayed_token_count=stats.replayed,
        cached_token_count=stats.cached_tokens,
    )


def _decode_stats(message: target_pb2.ChoiceStats) -> ChoiceStats:
    # Resumes are counted by the gateway: a target sees each attempt as a request of its own.
    return ChoiceStats(
        prompt_tokens=message.prompt_token_count,
        completion_tokens=message.completion_token_count,
        rounds=message.round_count,
        drafted=message.drafted_count,
        tested=message.tested_count,
        accepted=message.accepted_count,
        drafter=message.drafter or None,
        switches=message.switch_count,
        replayed=message.replayed_token_count,
        cached_tokens=message.cached_token_count,
    )


def encode_report(report: LoadReport) -> target_pb2.WatchLoadResponse:
    """A load report as a message."""
    load = report.load
    return target_pb2.WatchLoadResponse(
        running_count=load.running,
        waiting_count=load.waiting,
        total_page_count=load.total_pages,
        free_page_count=load.free_pages,
        decode_tokens_per_s=load.decode_tokens_per_s,
        drafter_groups=[target_pb2.DrafterGroupStatus(**dataclasses.asdict(group)) for group in load.drafter_groups],
        held_count=report.num_held,
        system_fingerprint=report.system_fingerprint,
        uptime_ms=round(report.uptime_s * 1e3),
        draining=report.draining,
        stalled_s=report.stalled_s,
    )


def decode_report(message: target_pb2.WatchLoadResponse) -> LoadReport:
    """A load report from a message."""
    groups = tuple(
        DrafterGroupStatus(
            group.name, group.method, group.live, group.detail, group.gain if group.HasField("gain") else None
        )
        for group in message.drafter_groups
    )
    load = TargetLoad(
        running=message.running_count,
        waiting=message.waiting_count,
        total_pages=message.total_page_count,
        free_pages=message.free_page_count,
        decode_tokens_per_s=message.decode_tokens_per_s,
        drafter_groups=groups,
    )
    return LoadReport(
        load,
        message.held_count,
        message.system_fingerprint,
        uptime_s=message.uptime_ms / 1e3,
        draining=message.draining,
        stalled_s=message.stalled_s,
    )
