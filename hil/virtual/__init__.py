"""The virtual bench: a QEMU twin of a Cortex-M7 board, its instruction profiler and its cycle model."""
