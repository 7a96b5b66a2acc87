"""Presets: descriptions of real device models, read from files."""
