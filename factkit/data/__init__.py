"""Documents, data sets and retrieval, to one schema."""
