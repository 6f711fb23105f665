"""The paceline command."""
