"""Paceline: lossless hierarchical speculative decoding as a platform. This package never imports Ray."""

__version__ = "0.1.0"
