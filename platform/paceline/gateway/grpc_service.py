"""The gRPC door's logic: messages in, messages out. The server around it lives where the port is bound."""

import logging
from collections.abc import AsyncIterator, Sequence

from paceline.core.generation import GenerationChunk
from paceline.core.plans import SpeculationMode, SpeculationPreference
from paceline.core.priority import Priority
from paceline.errors import InvalidRequestError, PacelineError, PayloadTooLargeError
from paceline.gateway.answer import Answer
from paceline.gateway.answer_summary import AnswerSummary
from paceline.gateway.gateway_request import GatewayRequest, Prompt, clean_label
from paceline.gateway.service import GatewayService
from paceline.rpc.codec_sampling import decode_sampling
from paceline.text.chat import ROLES, ChatMessage, canonical_role
from paceline.v1 import generation_pb2

logger = logging.getLogger(__name__)

_INTERNAL = "The gateway failed; its log has the details, under the request's id."
_MODES = {
    generation_pb2.SPECULATION_MODE_UNSPECIFIED: SpeculationMode.AUTO,
    generation_pb2.SPECULATION_MODE_AUTO: SpeculationMode.AUTO,
    generation_pb2.SPECULATION_MODE_ON: SpeculationMode.ON,
    generation_pb2.SPECULATION_MODE_OFF: SpeculationMode.OFF,
}
_PRIORITIES = {
    generation_pb2.PRIORITY_UNSPECIFIED: Priority.NORMAL,
    generation_pb2.PRIORITY_HIGH: Priority.HIGH,
    generation_pb2.PRIORITY_NORMAL: Priority.NORMAL,
    generation_pb2.PRIORITY_LOW: Priority.LOW,
}


async def generate(
    request: generation_pb2.GenerateRequest, service: GatewayService, *, traceparent: str = ""
) -> AsyncIterator[generation_pb2.GenerateResponse]:
    """Answer one call of GenerationService/Generate.

    Raises a PacelineError before the first message, for the caller to turn into a status; afterwards the
    stream ends with a message that has `error` set. What nobody planned is logged and says nothing about the
    inside. Closing the iterator ends the generation.
    """
    gateway_request = _accept(request, service, traceparent)
    name = gateway_request.label or gateway_request.request_id
    async with await _open(service, gateway_request) as answer:
        try:
            async for batch in answer:
                yield generation_pb2.GenerateResponse(request_id=name, chunks=encode_chunks(batch))
            last = generation_pb2.GenerateResponse(request_id=name, summary=encode_summary(answer.summary()))
        except PacelineError as error:
            logger.warning("request %s broke off: %s", answer.request_id, error)
            last = generation_pb2.GenerateResponse(request_id=name, error=encode_error(error))
        except Exception:  # the client must get an end that it can read, whatever is wrong here
            logger.exception("request %s broke off", answer.request_id)
            last = generation_pb2.GenerateResponse(request_id=name, error=encode_error(PacelineError(_INTERNAL)))
        yield last


def _accept(request: generation_pb2.GenerateRequest, service: GatewayService, traceparent: str) -> GatewayRequest:
    try:
        if (size_bytes := request.ByteSize()) > service.max_body_bytes:
            raise PayloadTooLargeError(size_bytes, service.max_body_bytes)
        return decode_request(request, traceparent=traceparent)
    except PacelineError as error:
        service.refused(error, "grpc")
        raise


async def _open(service: GatewayService, request: GatewayRequest) -> Answer:
    try:
        return await service.open(request)
    except PacelineError:
        raise
    except Exception as error:  # the door answers every request, whatever is wrong behind it
        logger.exception("request %s failed", request.request_id)
        raise PacelineError(_INTERNAL) from error


def decode_request(request: generation_pb2.GenerateRequest, *, traceparent: str = "") -> GatewayRequest:
    """The request as the service wants it. Raises InvalidRequestError."""
    if request.speculation.mode not in _MODES:
        raise InvalidRequestError("'speculation.mode' has an unknown value.", "speculation.mode")
    if request.priority not in _PRIORITIES:
        raise InvalidRequestError("'priority' has an unknown value.", "priority")
    wish = request.speculation
    return GatewayRequest(
        prompt=_prompt(request),
        sampling=decode_sampling(request.sampling),
        model=request.model or None,
        max_tokens=request.sampling.max_tokens or None,
        seed=request.seed if request.HasField("seed") else None,
        num_choices=request.choice_count or 1,
        speculation=SpeculationPreference(
            _MODES[wish.mode],
            wish.drafter or None,
            wish.max_draft_token_count if wish.HasField("max_draft_token_count") else None,
        ),
        explain=request.explain,
        deadline_s=request.deadline_s or None,
        priority=_PRIORITIES[request.priority],
        label=clean_label(request.request_id),
        door="grpc",
        traceparent=traceparent,
    )


def _prompt(request: generation_pb2.GenerateRequest) -> Prompt:
    match request.WhichOneof("input"):
        case "prompt":
            return request.prompt
        case "prompt_tokens":
            return tuple(request.prompt_tokens.token_ids)
        case "conversation":
            messages = request.conversation.messages
            if not messages:
                raise InvalidRequestError("'conversation' must have at least one message.", "conversation")
            return tuple(_message(message, index) for index, message in enumerate(messages))
        case _:
            raise InvalidRequestError("'prompt', 'conversation' or 'prompt_tokens' must be set.", "input")


def _message(message: generation_pb2.Message, index: int) -> ChatMessage:
    role = canonical_role(message.role)
    if role not in ROLES:
        field = f"conversation.messages[{index}].role"
        raise InvalidRequestError(f"'{field}' must be one of developer, {', '.join(ROLES)}.", field)
    return ChatMessage(
        role,
        message.content,
        message.name if message.HasField("name") else None,
        message.tool_call_id if message.HasField("tool_call_id") else None,
    )


def encode_chunks(batch: Sequence[GenerationChunk]) -> list[generation_pb2.GeneratedChunk]:
    """Chunks as the public API has them."""
    return [
        generation_pb2.GeneratedChunk(
            choice=chunk.choice,
            first_index=chunk.first_index,
            token_ids=chunk.token_ids,
            text=chunk.text,
            finish_reason=chunk.finish.value if chunk.finish else "",
            logprobs=[
                generation_pb2.GeneratedLogprob(
                    token_id=entry.token_id,
                    logprob=entry.logprob,
                    top=[generation_pb2.GeneratedTopLogprob(token_id=i, logprob=p) for i, p in entry.top],
                )
                for entry in chunk.logprobs
            ],
            rounds=[
                generation_pb2.GeneratedRound(
                    drafted_token_ids=trace.drafted,
                    accepted_count=trace.accepted,
                    target_token_id=trace.target_token,
                    wait_ms=trace.wait_ms,
                    draft_ms=trace.draft_ms,
                    verify_ms=trace.verify_ms,
                    parents=trace.parents,
                    accepted_path=trace.path,
                )
                for trace in chunk.rounds
            ],
        )
        for chunk in batch
    ]


def encode_summary(summary: AnswerSummary) -> generation_pb2.GenerationSummary:
    """The last message's facts."""
    return generation_pb2.GenerationSummary(
        prompt_token_count=summary.prompt_tokens,
        cached_prompt_token_count=summary.cached_tokens,
        completion_token_count=summary.completion_tokens,
        accepted_prediction_token_count=summary.accepted_tokens,
        rejected_prediction_token_count=summary.rejected_tokens,
        route=summary.route.value,
        reason=summary.reason,
        drafter=summary.drafter or "",
        switch_count=summary.switches,
        tau=summary.tau,
        alpha=summary.alpha,
        seed=summary.seed,
        resumed_count=summary.resumed,
        verifier=summary.verifier,
        system_fingerprint=summary.system_fingerprint,
        model=summary.model,
    )


def encode_error(error: PacelineError) -> generation_pb2.GenerationError:
    """An error that came after the first message."""
    return generation_pb2.GenerationError(reason=error.reason, message=str(error), retryable=error.retryable)
