"""charts: tables (pandas) of what a run found -> charts, each a table with its Vega-Lite description."""
