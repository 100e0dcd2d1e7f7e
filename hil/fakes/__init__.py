"""A Python function -> a device that speaks the real bytes: our firmware, the stock one, a line that loses bytes."""
