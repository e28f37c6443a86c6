"""How the coordinator and a measuring process speak: requests, sealed answers, and foreign text made fit to be shown.

Standard library only, and nothing of ours: both sides import it, the measuring process before any foreign code.
"""
