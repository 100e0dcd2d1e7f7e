"""charting: the installed vl-convert -> Vega as one script, which every page with charts carries inside."""
