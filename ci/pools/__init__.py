"""Pools: the machines behind one runner label or one Slurm partition, and how a command runs on them.

`ci/runners.toml` describes them; `file.load` reads it, `command.wrapped` writes the bash text that enters a pool's
environment, `command.legs` is what GitHub's workflows run.  Standard library only: `python3 -m ci.pools` runs before
anything is installed.
"""
