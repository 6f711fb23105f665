"""Engines behind the EngineBackend protocol."""
