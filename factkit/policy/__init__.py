"""Loading a policy, generating with it and scoring."""
