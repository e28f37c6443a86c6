"""`ridgeline adopt` on benchmark scripts of public repositories: how many run, how many are judged, why not.

    python -m tests.study.adopted --clones FOLDER [--only NAME] [--budget MINUTES] [--python PYTHON]

`scripts.toml` lists them with the commit at which they were taken.  FOLDER has a clone of each repository, under its
name; nothing of their code is kept here.  PYTHON is that of a throw-away environment with what the scripts import.
Both sides are the same commit, so every SLOWER or FASTER is a false alarm.
`outcomes.csv` has a row a script and is resumed, `outcomes.md` says what it comes to.
"""
