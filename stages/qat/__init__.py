"""A small float network -> the same with weights and activations on int8 grids, trained through the rounding."""
