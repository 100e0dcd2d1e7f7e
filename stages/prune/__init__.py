"""Features, a wide network and budgets -> a small trained network: differentiable pruning during training."""
