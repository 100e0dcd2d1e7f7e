"""A Graph -> size, MACs, peak memory, the best operator order and the best arena layout."""
