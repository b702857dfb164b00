"""The gates: what is asked of a serve, and what decides over the answers."""
