"""One module a paper: the reward as a pure function, then its adapter to TRL."""
