"""Short-lived GitHub runners on Slurm: one Slurm job for each queued GitHub job that asks for our labels.

`decide` is a pure function from what was seen to what is to be done; `service` sees, asks it, and does; `hub` is
GitHub's queue; `state` is what is remembered, and gives a job its one-time configuration through a file that only its
user can read.

Who may run is asked twice: by the service at GitHub, before it starts a job (`state.refusal`), and on the node,
before anything of a job runs (node/guard.sh), for GitHub gives a runner any job with its labels.  Jobs run as the user
of the service.  Code that is not trusted must therefore run in its pool's container, which sees none of that user's
files; a pool without a container is for code that is trusted, and the service says so when it starts.
"""
