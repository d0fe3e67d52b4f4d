"""Drawings: values in, SVG markup out. No script, no colours: classes, which the style sheet follows.

bars.py   columns over time, in layers
ring.py   parts of a whole
span.py   bars in a row of a table: a share, a stretch of time
graph.py  who depends on whom, in layers from left to right
"""
