"""Speculative or plain, decided per request."""
