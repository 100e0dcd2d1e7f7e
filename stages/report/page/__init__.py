"""page: charts (tables with their Vega-Lite descriptions) and words -> one self-contained HTML page, SVG and PNG."""
