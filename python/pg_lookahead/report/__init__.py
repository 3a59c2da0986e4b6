"""What was measured, and its views.

record    the one model of a run: its results, in memory and as JSON lines
terminal  progress, and the table
html      a page with plots
words     figures in words
"""
