"""anvil-tui: take a model serve from recipe to production and back, on your own GPUs, without guessing."""

__version__ = "0.1.0"
