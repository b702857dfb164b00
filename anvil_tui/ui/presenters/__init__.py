"""Pure functions from a World to panels of cells. No textual here."""
