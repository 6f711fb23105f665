"""Tokenizers, chat templates, incremental text."""
