"""Every call of git: commits, worktrees, pushes."""
