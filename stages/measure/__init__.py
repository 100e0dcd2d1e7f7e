"""An image on a board or twin -> samples, layers, outputs, power: raw figures and checks."""
