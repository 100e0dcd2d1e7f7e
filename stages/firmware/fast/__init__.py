"""An operator -> a call of a Cortex-M7 kernel, where there is one: packed weights, exact requantisation, assembly."""
