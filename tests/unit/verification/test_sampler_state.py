"""The state of a choice: exact undo, and nothing that a rebuild would not have."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.sampling_params import SamplingParams
from paceline.verification.sampler_state import SamplerState

TOKENS = st.lists(st.integers(0, 5), max_size=12)
PARAMS = SamplingParams(repetition_penalty=1.3, bad_words=((1, 2), (3,), (2, 2, 4)), min_tokens=4, stop_token_ids=(5,))


def build(prompt: list[int], output: list[int], params: SamplingParams = PARAMS) -> SamplerState:
    state = SamplerState(params, prompt_token_ids=prompt, eos_token_ids=(0,), seed=9, choice=1)
    state.commit(output)
    return state


def view(state: SamplerState) -> tuple[object, ...]:
    return (
        state.position,
        state.num_output,
        state.output_token_ids,
        state.output_counts(),
        state.seen_token_ids(),
        state.banned_token_ids(),
    )


@given(prompt=TOKENS, committed=TOKENS, drafts=TOKENS)
def test_a_round_of_rejected_drafts_leaves_no_trace(prompt: list[int], committed: list[int], drafts: list[int]) -> None:
    """After pushing and popping any drafts the state equals one that never saw them."""
    state = build(prompt, committed)
    for token_id in drafts:
        state.push(token_id)
    popped = [state.pop() for _ in drafts]

    assert popped == drafts[::-1]
    assert view(state) == view(build(prompt, committed))


@given(prompt=TOKENS, committed=TOKENS, drafts=TOKENS, more=TOKENS)
def test_committing_after_a_walk_equals_a_rebuild(
    prompt: list[int], committed: list[int], drafts: list[int], more: list[int]
) -> None:
    """What was pushed inside a walk is gone after it, and commits go on from the committed tokens."""
    state = build(prompt, committed)
    with state.walk():
        state.commit(drafts)
    state.commit(more)

    assert view(state) == view(build(prompt, committed + more))


@given(prompt=TOKENS, output=TOKENS)
def test_bans_and_counts_follow_from_the_output(prompt: list[int], output: list[int]) -> None:
    """Bans are read off the output alone: bad words never match across the prompt's end."""
    banned = {3}
    if output[-1:] == [1]:
        banned.add(2)
    if output[-2:] == [2, 2]:
        banned.add(4)
    if len(output) < 4:
        banned |= {0, 5}
    state = build(prompt, output)

    assert state.banned_token_ids() == banned
    assert state.output_counts() == {i: output.count(i) for i in set(output)}
    assert state.seen_token_ids() == set(prompt) | set(output)
    assert state.position == len(prompt) + len(output)


def test_a_walk_is_undone_when_it_raises() -> None:
    """An error in mid-walk leaves the state as it was."""
    state = build([1], [2])

    with suppress(IndexError), state.walk():
        state.push(3)
        [].pop()

    assert state.output_token_ids == (2,)
