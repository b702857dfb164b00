"""The files that `anvil-tui init DIR` copies: anvil.toml, a recipe to start from, and gates/, the one home of the
ready-made suites and their pictures; `gates` of the repository is a link to it."""
