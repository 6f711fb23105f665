"""Records that every layer shares: frozen, stdlib only."""
