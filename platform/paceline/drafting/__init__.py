"""Drafting methods."""
