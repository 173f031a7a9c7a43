"""Embedded sources of facts: the fact world and the Wikipedia leads."""
