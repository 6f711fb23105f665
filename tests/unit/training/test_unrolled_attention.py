"""Many drafts at once see what each would see alone in serving."""

import pytest
import torch

from paceline.training.unrolled_attention import StepKeys, use_unrolled_attention
from tiny_heads import tiny_head, tiny_target

TOKENS = 7


def unrolled(head, embeddings, features, depth):
    """Hidden states of each step, as `ChainPupil` makes them."""
    use_unrolled_attention(head)
    keys, results = StepKeys(), []
    for step in range(1, depth + 1):
        if 1 < step <= head.spec.num_modules:
            keys = StepKeys(first=step - 1)
        hidden = head(embeddings, features, depth=step, keys=keys)
        results.append(hidden)
        features = torch.cat((torch.zeros_like(hidden[:, :1]), hidden[:, :-1]), dim=1)
    return results


def served(head, embeddings, features, root, depth):
    """The hidden state of a draft of ``depth`` behind token ``root``, by one causal pass a module and draft.

    The drafter's rule: module k reads what module k - 1 made of the token before, the last module its own guesses.
    """
    modules = head.spec.num_modules
    inputs, made = features[:, : root + 1], None
    for module in range(1, modules + 1):  # context, and drafts that modules before the last one make
        length = min(root + module, root + depth)
        made = head(embeddings[:, module - 1 : length], inputs, depth=module, positions=positions(module - 1, length))
        if module == depth:
            return made[:, -1]
        if module < modules:
            inputs = made
    first = modules - 1
    context = inputs if modules == 1 else inputs[:, : root + modules - first]
    for draft in range(modules + 1, depth + 1):
        context = torch.cat((context, made[:, -1:]), dim=1)
        length = root + draft
        made = head(embeddings[:, first:length], context, depth=draft, positions=positions(first, length))
    return made[:, -1]


def positions(start, stop):
    return torch.arange(start, stop)[None]


@pytest.mark.parametrize("kind", ["eagle", "mtp"])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_every_place_is_a_draft_as_it_would_be_served(kind, depth):
    """Hidden states of step s at token u equal those of a chain behind the token s - 1 before it, one pass each."""
    model = tiny_target()
    head = tiny_head(kind, model)
    torch.manual_seed(0)
    embeddings, features = torch.randn(2, 1, TOKENS, model.config.hidden_size)
    with torch.no_grad():
        found = unrolled(head, embeddings, features, depth)[-1]
        for root in range(TOKENS - depth + 1):
            expected = served(head, embeddings, features, root, depth)
            scale = expected.abs().max()
            assert torch.allclose(found[:, root + depth - 1] / scale, expected / scale, atol=1e-5), root


def test_drafts_see_their_context_and_their_own_chain():
    """Step 3 of five tokens: context up to two before, one key of step 2, its own."""
    keys = StepKeys()
    for _ in range(3):
        keys.add(torch.zeros(1, 1, 5, 2), torch.zeros(1, 1, 5, 2))
    mask = keys.mask(5, torch.device("cpu"))

    assert mask[4].nonzero()[:, 0].tolist() == [0, 1, 2, 5 + 3, 10 + 4]
    assert mask[2].nonzero()[:, 0].tolist() == [0, 5 + 1, 10 + 2]
