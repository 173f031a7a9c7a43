"""Learning to Reason for Factuality (paper 3): notebooks 30 to 34."""
