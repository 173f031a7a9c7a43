"""TruthRL (paper 1): notebooks 10 to 14."""
