"""The target distribution, noise and the verifiers."""
