"""Draft heads: small networks over the target's hidden states."""
