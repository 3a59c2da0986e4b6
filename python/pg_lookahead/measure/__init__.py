"""Measuring two ways of doing the same thing side by side.

turns       samples of each side in turns, until the interval is narrow
statistics  what may be concluded from them, and when to stop
meter       time, processor time and reads of one execution
perf        records of perf
"""
