"""The controlled fact world of profile `tiny`: its facts, and how it is told."""
