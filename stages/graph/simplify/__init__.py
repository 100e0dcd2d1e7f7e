"""A Graph -> one that computes the same bits with less work."""
