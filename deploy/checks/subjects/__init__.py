"""Modules whose functions are checks; see registry.py."""
