"""Clients of the public API."""
