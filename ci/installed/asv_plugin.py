"""asv's environment type "worktree" for a project of your own: `"plugins": [".ridgeline.asv_plugin"]`.

The leading dot makes asv 0.6 import the module; without it asv silently ignores the name.
"""

import sys

from ridgeline import enter

_before = sys.path[:1]
enter()

from ci.asv_plugin import EveryParent, Worktree  # noqa: E402 - asv finds both among the subclasses that exist

__all__ = ["EveryParent", "Worktree"]

sys.path[:0] = _before  # asv has put "." there, and takes the first entry away again
