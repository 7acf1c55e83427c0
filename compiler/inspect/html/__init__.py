"""Writes self-contained HTML pages that show a network."""
