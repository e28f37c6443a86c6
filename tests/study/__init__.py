"""Studies that somebody can run again.  A page that names a commit was made by the command of that commit, which anyone
can run in `git worktree add ../then COMMIT`; what it found is not looked for again."""
