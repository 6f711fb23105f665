"""A client of the gRPC door."""

import asyncio
from itertools import cycle
from typing import Any

import grpc

from paceline.core.plans import SpeculationMode
from paceline.gateway.gateway_request import GatewayRequest
from paceline.rpc.codec_sampling import encode_sampling
from paceline.text.chat import ChatMessage
from paceline.v1 import generation_pb2, generation_pb2_grpc
from paceline_serve.names import APP_NAME
from soak.hearing import Hearing
from soak.jobs import Job, Manner
from soak.malformed import GRPC_CASES

_METADATA = (("application", APP_NAME),)
_CONNECTIONS = 4
_TIMEOUT_S = 180.0
_MODES = {
    SpeculationMode.AUTO: generation_pb2.SPECULATION_MODE_AUTO,
    SpeculationMode.ON: generation_pb2.SPECULATION_MODE_ON,
    SpeculationMode.OFF: generation_pb2.SPECULATION_MODE_OFF,
}


class GrpcClient:
    """A few connections, each with many calls at a time."""

    def __init__(self, address: str) -> None:
        # Channels to one address would share a connection.
        self._channels = [
            grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
            for _ in range(_CONNECTIONS)
        ]
        stubs: list[Any] = [generation_pb2_grpc.GenerationServiceStub(channel) for channel in self._channels]
        self._stubs = cycle(stubs)

    async def close(self) -> None:
        """Close all connections."""
        for channel in self._channels:
            await channel.close()

    async def ask(self, job: Job, question: GatewayRequest, hearing: Hearing) -> None:
        """Do the job; everything that came is in ``hearing``, however it ends."""
        request = grpc_request(job, question)
        if job.manner is Manner.MALFORMED:
            GRPC_CASES[job.case].spoil(request)
        call = next(self._stubs).Generate(request, metadata=_METADATA, timeout=_TIMEOUT_S)
        try:
            await _read(call, job, hearing)
        except grpc.aio.AioRpcError as error:
            _note_status(hearing, error)
        finally:
            call.cancel()


def grpc_request(job: Job, question: GatewayRequest) -> generation_pb2.GenerateRequest:
    """The message of a request."""
    request = generation_pb2.GenerateRequest(
        sampling=encode_sampling(question.sampling),
        seed=question.seed,
        choice_count=question.num_choices,
        deadline_s=job.patience_s if job.manner is Manner.HURRIED else 0.0,
    )
    request.sampling.max_tokens = question.max_tokens or 0
    wish = job.speculation
    request.speculation.mode = _MODES[wish.mode]
    request.speculation.drafter = wish.drafter or ""
    if wish.max_draft_tokens is not None:
        request.speculation.max_draft_token_count = wish.max_draft_tokens
    if isinstance(question.prompt, str):
        request.prompt = question.prompt
    elif question.prompt_is_chat:
        for item in question.prompt:
            if isinstance(item, ChatMessage):
                request.conversation.messages.add(role=item.role, content=item.content)
    else:
        request.prompt_tokens.token_ids.extend(item for item in question.prompt if isinstance(item, int))
    return request


async def _read(call: Any, job: Job, hearing: Hearing) -> None:
    num_messages = 0
    async for message in call:
        if message.HasField("error"):
            hearing.in_band, hearing.message = message.error.reason.lower(), message.error.message
        _note_chunks(hearing, message.chunks)
        if message.HasField("summary"):
            _note_summary(hearing, message.summary)
        num_messages += 1
        if job.manner is Manner.CANCELLED and num_messages >= job.num_chunks:
            hearing.gave_up = True
            return
        if job.manner is Manner.SLOW:
            await asyncio.sleep(job.patience_s)
    if not hearing.ended and not hearing.in_band:
        hearing.broken = "the stream ended without a summary"


def _note_chunks(hearing: Hearing, chunks: Any) -> None:
    for chunk in chunks:
        choice = hearing.choice(chunk.choice)
        choice.ids = choice.ids if choice.ids is not None else []
        if chunk.first_index != len(choice.ids):
            hearing.gap = f"choice {chunk.choice}: token {chunk.first_index} came after {len(choice.ids)} tokens"
        choice.ids.extend(chunk.token_ids)
        choice.text += chunk.text
        choice.finish = chunk.finish_reason or choice.finish
        choice.logprobs += [entry.logprob for entry in chunk.logprobs]
        hearing.spoken()


def _note_summary(hearing: Hearing, summary: generation_pb2.GenerationSummary) -> None:
    hearing.ended = True
    hearing.prompt_tokens, hearing.completion_tokens = summary.prompt_token_count, summary.completion_token_count
    hearing.route, hearing.drafter, hearing.resumed = summary.route, summary.drafter, summary.resumed_count
    hearing.accepted = summary.accepted_prediction_token_count
    hearing.seed = summary.seed


def _note_status(hearing: Hearing, error: grpc.aio.AioRpcError) -> None:
    reason, _, rest = (error.details() or "").partition(": ")
    if reason.isupper() and rest:
        hearing.refusal, hearing.code, hearing.message = error.code().name, reason.lower(), rest
    else:
        hearing.broken = f"{error.code().name}: {error.details()}"
