"""Short-lived GitHub runners on Slurm: one Slurm job for each queued GitHub job that asks for our labels.

`decide` is a pure function from what was seen to what is to be done; `service` sees, asks it, and does; `handover`
gives a job its one-time configuration through a file that only its user can read.
"""
