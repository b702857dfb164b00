"""The files that `anvil-tui init DIR` copies: a commented anvil.toml, two suites, a recipe to start from."""
