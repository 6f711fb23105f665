"""The native engine: scheduler, step, speculation, delivery."""
