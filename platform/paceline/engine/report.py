"""What a client may see of one decision besides its tokens."""

from paceline.core.generation import FinishReason, GenerationChunk, RoundTrace, TokenLogprob
from paceline.engine.sequence import Sequence
from paceline.engine.step_plan import Decision, StepTimes
from paceline.verification.logprobs import token_logprob


def logprobs_of(decision: Decision, num_tokens: int) -> tuple[TokenLogprob, ...]:
    """Logprobs of the first ``num_tokens`` tokens, where the request asked for them."""
    num_top = decision.row.sequence.request.sampling.logprobs
    if num_top is None:
        return ()
    token_ids = decision.verdict.token_ids[:num_tokens]
    rows = (0, *(1 + node for node in decision.verdict.path))  # of the logits that each token was drawn from
    return tuple(
        token_logprob(decision.logits[row], token_id, num_top) for row, token_id in zip(rows, token_ids, strict=False)
    )


def trace_of(decision: Decision, times: StepTimes, num_tokens: int) -> RoundTrace:
    """The round as `--explain` prints it; ``num_tokens`` of its tokens stand."""
    accepted = min(decision.verdict.accepted, num_tokens)
    tree = decision.proposal.tree if decision.proposal and not decision.proposal.tree.is_chain else None
    return RoundTrace(
        drafted=decision.drafted,
        accepted=accepted,
        target_token=decision.verdict.token_ids[-1] if num_tokens == len(decision.verdict.token_ids) else None,
        wait_ms=times.wait_s * 1e3,
        draft_ms=decision.proposal.draft_ms if decision.proposal else 0.0,
        verify_ms=times.pass_s * 1e3,
        parents=tree.parents if tree else (),
        path=decision.verdict.path[:accepted] if tree else (),
    )


def last_chunk(sequence: Sequence, group: str | None) -> GenerationChunk:
    """The chunk that ends a choice between two passes: the counts, and text only if some is to be given again."""
    text_offset = sequence.text.offset
    text = "" if sequence.finish is FinishReason.ABORT else sequence.text.flush()
    return GenerationChunk(
        key=sequence.key,
        choice=sequence.choice,
        first_index=sequence.num_output,
        token_ids=(),
        text=text,
        text_offset=text_offset,
        finish=sequence.finish,
        stats=sequence.stats(group),
    )
