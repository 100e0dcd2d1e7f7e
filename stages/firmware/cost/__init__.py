"""Widths of a network's channel groups -> what its firmware costs: cycles of every layer, flash and RAM, per board."""
