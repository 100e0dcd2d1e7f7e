"""A command line -> calls of the engine, and their results as text or JSON."""
