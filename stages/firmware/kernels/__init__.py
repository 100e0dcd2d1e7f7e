"""An operator -> a call of a portable C kernel with its parameters, and the order in which it reads and writes."""
