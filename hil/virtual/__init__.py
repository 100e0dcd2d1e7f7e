"""A twin image -> outputs, instructions and modelled cycles: QEMU in place of a board, profiler, cycle model."""
