"""The steps of the pipeline, one folder each, and the two rooms they share: `graph` and `nets`."""
