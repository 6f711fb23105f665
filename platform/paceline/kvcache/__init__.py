"""Pages of the KV cache."""
