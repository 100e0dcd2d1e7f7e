"""Devices that are not there, speaking the real bytes: our firmware, the stock one, a line that loses bytes."""
