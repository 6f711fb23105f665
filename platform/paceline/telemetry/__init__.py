"""Metric catalogue, trace context and logging."""
