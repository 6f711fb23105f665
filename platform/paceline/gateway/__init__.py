"""REST and gRPC doors: validation, queue, relay."""
