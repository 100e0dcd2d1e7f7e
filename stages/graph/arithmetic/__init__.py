"""Operators -> numbers: what int8 kernels compute, bit for bit, and the same in float."""
