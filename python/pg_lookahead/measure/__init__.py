"""How two ways of doing the same thing are measured side by side.

turns       samples of each side in turns, until the interval is narrow
statistics  what may be concluded from them, and when to stop
meter       what one execution cost
perf        records of perf
"""
