"""Dialogs: a question in, a typed answer out."""
