"""What was measured, and its views.

record    the one model of a run: what was asked for, where it was, and its results
journal   its file of JSON lines, written as they come, and read again
terminal  progress, and the table
html      a page with plots
plots     its plots; page: the look of all pages
words     figures in words
files     files that are written whole or not at all
"""
