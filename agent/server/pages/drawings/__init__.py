"""Drawings of tasks and workflows: positions as plain values, which templates write as SVG.

`graph_drawing.draw_graph` is the entry point for graphs: `folding` decides which steps share a box, then
`layered_graph` puts the boxes into layers, `crossing_reduction` orders each layer, and `coordinates` says where
each box stands (`text_width` how wide it is). `timeline` squeezes time, `lanes` draws the margin of a list of steps,
`charts` the bars of spend. Everything here is a pure function of its arguments: no clock, no database, no markup.
Positions are numbers, since the pages allow no inline styles.
"""
