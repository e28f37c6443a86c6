"""asv's environment type "worktree" for a project of your own: `"plugins": ["ridgeline.asv_plugin"]`."""

from ridgeline import enter

enter()

from ci.asv_plugin import Worktree  # noqa: E402 - asv finds an environment type among the subclasses that exist

__all__ = ["Worktree"]
