"""Charts as SVG markup, without scripts; the style sheet colours them by class.

bars.py   stacked columns over time
ring.py   ring chart of parts of a whole
span.py   bars in table rows: a share, or spans of time
graph.py  dependency graph, in layers from left to right
"""
