"""The OpenAI-compatible REST dialect: request models, response bodies."""
