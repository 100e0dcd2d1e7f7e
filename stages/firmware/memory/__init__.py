"""A compiled model -> where it lies on a board: regions, bytes of flash and RAM, depth of the stack."""
