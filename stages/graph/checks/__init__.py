"""A Graph -> the same Graph, sound; or one sentence on what does not fit."""
