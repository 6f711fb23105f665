"""gRPC between replicas."""
