"""The files that `anvil-tui init DIR` copies: anvil.toml, suites, the pictures of gates, a recipe to start from."""
