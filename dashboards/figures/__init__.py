"""Figures for comments, reports and papers, by matplotlib.

The suffix of the path chooses the format (.png, .svg, .pdf).  The same records give the same bytes: no date is written.
"""
