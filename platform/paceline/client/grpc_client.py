"""Asks through the gRPC API."""

from collections.abc import Generator

import grpc

from paceline.client.conversation import AnswerEvent, AnswerFacts, ChatQuestion, ShownRound, ShownToken, TextPiece
from paceline.errors import AnswerFailedError, PacelineError, ServiceUnreachableError
from paceline.rpc.loopback import host_of, is_loopback
from paceline.v1 import generation_pb2, generation_pb2_grpc

DEFAULT_APPLICATION = "paceline"
_MODES = {
    "auto": generation_pb2.SPECULATION_MODE_AUTO,
    "on": generation_pb2.SPECULATION_MODE_ON,
    "off": generation_pb2.SPECULATION_MODE_OFF,
}


class GrpcClient:
    """A connection to one gateway's gRPC door."""

    def __init__(self, address: str, *, application: str = DEFAULT_APPLICATION) -> None:
        """``address`` is HOST:PORT; ``application`` is the Serve application that the proxy passes calls to."""
        self._address = address
        self._metadata = (("application", application),)
        # A web proxy that the environment names cannot reach this machine's own addresses.
        options = [("grpc.enable_http_proxy", 0)] if is_loopback(host_of(address)) else []
        self._channel = grpc.insecure_channel(address, options=options)
        self._stub = generation_pb2_grpc.GenerationServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated

    def ask(self, question: ChatQuestion) -> Generator[AnswerEvent, None, None]:
        """Stream the answer; see `ChatClient.ask`."""
        call = self._stub.Generate(request_message(question), metadata=self._metadata)
        finish_reason, complete = "", False
        try:
            for message in call:
                if message.HasField("error"):
                    raise AnswerFailedError(message.error.reason.lower(), message.error.message)
                for chunk in message.chunks:
                    finish_reason = chunk.finish_reason or finish_reason
                    rounds = tuple(_round(entry) for entry in chunk.rounds)
                    yield TextPiece(chunk.text, rounds, num_tokens=len(chunk.token_ids))
                if message.HasField("summary"):
                    complete = True
                    yield _facts(message.summary, finish_reason)
        except grpc.RpcError as error:
            raise self._failure(error) from error
        finally:
            call.cancel()  # of no effect on a call that has ended
        if not complete:
            raise AnswerFailedError("stream_broken", "the stream stopped in the middle of the answer.")

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _failure(self, error: grpc.RpcError) -> PacelineError:
        code, details = error.code(), error.details() or ""
        reason, separator, sentence = details.partition(": ")
        if separator and reason.isupper():
            return AnswerFailedError(reason.lower(), sentence)
        if code is grpc.StatusCode.UNAVAILABLE:
            return ServiceUnreachableError(self._address, "gRPC connection failed")
        return AnswerFailedError(code.name.lower(), details)


def request_message(question: ChatQuestion) -> generation_pb2.GenerateRequest:
    """The request; what is None is left to the server."""
    request = generation_pb2.GenerateRequest(
        model=question.model or "",
        conversation=generation_pb2.Conversation(
            messages=[generation_pb2.Message(role=turn.role, content=turn.content) for turn in question.turns]
        ),
        seed=None if question.seed is None else question.seed & (2**64 - 1),
        speculation=generation_pb2.Speculation(mode=_MODES[question.speculation], drafter=question.drafter or ""),
        explain=question.explain,
    )
    if question.max_draft_tokens is not None:
        request.speculation.max_draft_token_count = question.max_draft_tokens
    request.sampling.max_tokens = question.max_tokens or 0
    if question.temperature is not None:
        request.sampling.temperature = question.temperature
    return request


def _round(entry: generation_pb2.GeneratedRound) -> ShownRound:
    return ShownRound(
        drafted=tuple(ShownToken(token_id) for token_id in entry.drafted_token_ids),
        accepted=entry.accepted_count,
        target_token=ShownToken(entry.target_token_id) if entry.HasField("target_token_id") else None,
        wait_ms=entry.wait_ms,
        draft_ms=entry.draft_ms,
        verify_ms=entry.verify_ms,
        path=tuple(entry.accepted_path),
        parents=tuple(entry.parents),
    )


def _facts(summary: generation_pb2.GenerationSummary, finish_reason: str) -> AnswerFacts:
    return AnswerFacts(
        model=summary.model,
        finish_reason=finish_reason,
        prompt_tokens=summary.prompt_token_count,
        completion_tokens=summary.completion_token_count,
        accepted_tokens=summary.accepted_prediction_token_count,
        rejected_tokens=summary.rejected_prediction_token_count,
        route=summary.route,
        reason=summary.reason,
        drafter=summary.drafter or None,
        switches=summary.switch_count,
        tau=summary.tau if summary.HasField("tau") else None,
        alpha=summary.alpha if summary.HasField("alpha") else None,
        seed=summary.seed,
        resumed=summary.resumed_count,
        verifier=summary.verifier,
        system_fingerprint=summary.system_fingerprint,
        cached_tokens=summary.cached_prompt_token_count,
    )
