"""Measuring what `auto` needs to know, on the machine at hand: links, local reduction, algorithms; and guidelines.

Reading order: timing.py (how times can be compared), exchange.py, fit.py and wires.py (alpha and beta of each class of
links), reduction.py, calls.py, algorithms.py and ranges.py (which algorithm wins where), run.py (all of it, within a
time), summary.py; guidelines.py (is what auto takes consistent).
"""
