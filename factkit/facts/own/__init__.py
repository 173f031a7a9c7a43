"""A user's own questions, requests, claims and documents."""
