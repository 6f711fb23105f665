"""Makes the `HeadSpec` of each kind of head."""

from collections.abc import Sequence

from transformers import PreTrainedConfig

from paceline.core.model_identity import FeatureFacts
from paceline.modeling.heads.head_shape import kv_shape
from paceline.modeling.heads.head_spec import HeadSpec, Method, Variant
from paceline.modeling.heads.target_weights import TargetWeights


def layered_spec(
    method: Method,
    variant: Variant,
    config: PreTrainedConfig,
    *,
    target: TargetWeights,
    num_modules: int = 1,
    draft_token_ids: Sequence[int] | None = None,
    feature: FeatureFacts | None = None,
) -> HeadSpec:
    """Of a head with decoder layers of ``config``; ``feature`` is the target's last hidden state by default."""
    num_kv_heads, head_dim = kv_shape(config)
    return HeadSpec(
        method=method,
        variant=variant,
        feature=feature or FeatureFacts("last", config.hidden_size),
        hidden_size=config.hidden_size,
        vocab_size=target.vocab_size,
        num_modules=num_modules,
        num_kv_layers=num_modules,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        context_length=config.max_position_embeddings,
        draft_token_ids=None if draft_token_ids is None else tuple(draft_token_ids),
    )


def medusa_spec(target: TargetWeights, num_heads: int, draft_token_ids: Sequence[int] | None = None) -> HeadSpec:
    """Of ``num_heads`` Medusa heads."""
    size = target.config.hidden_size
    return HeadSpec(
        method="medusa",
        variant="medusa",
        feature=FeatureFacts("last", size),
        hidden_size=size,
        vocab_size=target.vocab_size,
        num_modules=num_heads,
        num_kv_layers=0,
        num_kv_heads=0,
        head_dim=0,
        context_length=target.config.max_position_embeddings,
        draft_token_ids=None if draft_token_ids is None else tuple(draft_token_ids),
    )
