"""Slurm: jobs as arrays of tasks, and short-lived runners for GitHub's queue.  Neither keeps a state of its own.

`client` calls Slurm's commands and writes batch scripts, `jobs` submits and follows a job and is what runs on its
nodes, `runner` serves GitHub's queue.  A job is found by its name: Slurm gives the id of a job that it lost to
another one.
"""
