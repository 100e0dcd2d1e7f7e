"""Picture files and archives -> square uint8 RGB with labels: CIFAR-10, Visual Wake Words, ImageNet, made-up shapes."""
