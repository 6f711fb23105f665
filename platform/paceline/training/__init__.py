"""Makes drafters: data that the target wrote, the training of heads and draft models, their evaluation."""
