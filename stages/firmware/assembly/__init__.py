"""Cortex-M7 assembly of the inner loops, generated for the shapes of a network and scheduled for dual issue."""
