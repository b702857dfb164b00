"""Screens: which panes, and where."""
