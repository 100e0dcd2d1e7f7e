"""Examples, a network and a recipe -> a trained network: what prune and qat share and plug into."""
