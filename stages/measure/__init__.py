"""A flashed board or its twin -> what was seen: latency, cycles, energy, accuracy, outputs equal to the golden ones."""
