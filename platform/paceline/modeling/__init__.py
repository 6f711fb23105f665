"""Model files, families and the flat-batch forward pass."""
