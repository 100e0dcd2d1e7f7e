"""The backbones, as torch networks built from a name, arguments and channel widths."""
