"""Kills the second process that loads torch.distributed; DYING_ONCE names the file that the first one makes."""

import importlib.abc
import os
import signal
import sys


class _Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch.distributed":
            try:
                os.close(os.open(os.environ["DYING_ONCE"], os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                os.kill(os.getpid(), signal.SIGSEGV)


sys.meta_path.insert(0, _Watch())
