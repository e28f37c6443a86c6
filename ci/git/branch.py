"""A branch that holds data and no source: read and added to without touching the work tree, the index or HEAD.

Files in it are only ever added, under names that say their content; so two writers never conflict, and a push that is
refused is followed by uniting both trees.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ci.git.command import GitError, git, git_or_none
from ci.git.push import IDENTITY

ATTEMPTS = 5
"""Of a writer whose branch moved meanwhile: each is a matter of milliseconds."""

NOTHING = "0" * 40
"""What `git update-ref` takes for "must not exist"."""


@dataclasses.dataclass(frozen=True)
class Branch:
    """A branch of the repository at `root`, which it need not have yet."""

    root: Path
    name: str

    @classmethod
    def of(cls, folder: Path, name: str) -> Branch:
        """The branch of the repository around a folder.  Raises GitError."""
        top = git_or_none(folder, "rev-parse", "--show-toplevel")
        if top is None:
            raise GitError(f"{folder} is not inside a git repository; name a folder or an object store")
        if name.startswith("-") or git_or_none(folder, "check-ref-format", f"refs/heads/{name}") is None:
            raise GitError(f"{name!r} cannot be the name of a branch")
        return cls(Path(top), name)

    @property
    def ref(self) -> str:
        """Its full name."""
        return f"refs/heads/{self.name}"

    def tip(self) -> str | None:
        """Its newest commit: ours, else what was fetched of it, else what `origin` has; None if nobody has it."""
        own = git_or_none(self.root, "rev-parse", "--verify", "--quiet", self.ref)
        return own or self._fetched()

    def read(self, path: str) -> bytes:
        """The content of a file.  Raises GitError."""
        tip = self.tip()
        if tip is None:
            raise GitError(f"there is no branch {self.name}, neither here nor at origin")
        with tempfile.TemporaryDirectory() as folder:
            packed = Path(folder) / "file.tar"
            git(self.root, "archive", "--format=tar", f"--output={packed}", tip, "--", path)
            with tarfile.open(packed) as archive:
                stream = archive.extractfile(path)
                assert stream is not None
                return stream.read()

    def add(self, files: Mapping[str, bytes], message: str) -> str:
        """Commit files beside those that are there; returns the newest commit, a new one only if something is new."""
        for _ in range(ATTEMPTS):
            own = git_or_none(self.root, "rev-parse", "--verify", "--quiet", self.ref)
            tip = own or self._fetched()
            with self._index() as env:
                if tip:
                    git(self.root, "read-tree", tip, env=env)
                git(self.root, "update-index", "--add", "--index-info", stdin=self._entries(files), env=env)
                commit = self._commit(git(self.root, "write-tree", env=env), [tip] if tip else [], message)
            if commit == own or git_or_none(self.root, "update-ref", self.ref, commit, own or NOTHING) is not None:
                return commit
        raise GitError(f"the branch {self.name} moved {ATTEMPTS} times while it was written; try again")

    def unite(self, other: str) -> str:
        """Take in all files of another commit of the branch, as a merge; returns the newest commit."""
        own = self.tip()
        assert own is not None
        with self._index() as env:
            git(self.root, "read-tree", own, env=env)
            theirs = git(self.root, "ls-tree", "-r", "--full-tree", other) + "\n"
            git(self.root, "update-index", "--add", "--index-info", stdin=theirs, env=env)
            commit = self._commit(git(self.root, "write-tree", env=env), [own, other], "Unite samples")
        git(self.root, "update-ref", self.ref, commit, own)
        return commit

    def _commit(self, tree: str, parents: list[str], message: str) -> str:
        if len(parents) == 1 and git(self.root, "rev-parse", f"{parents[0]}^{{tree}}") == tree:
            return parents[0]
        name, mail = IDENTITY
        env = {
            f"GIT_{role}_{key}": one
            for role in ("AUTHOR", "COMMITTER")
            for key, one in (("NAME", name), ("EMAIL", mail))
        }
        options = [word for parent in parents for word in ("-p", parent)]
        return git(self.root, "commit-tree", tree, *options, "-m", message, env=env)

    def _entries(self, files: Mapping[str, bytes]) -> str:
        """Files as blobs, as lines for `git update-index --index-info`."""
        with tempfile.TemporaryDirectory() as folder:
            drafts = [Path(folder) / str(number) for number in range(len(files))]
            for draft, content in zip(drafts, files.values(), strict=True):
                draft.write_bytes(content)
            names = "".join(f"{draft}\n" for draft in drafts)
            blobs = git(self.root, "hash-object", "-w", "--no-filters", "--stdin-paths", stdin=names).split()
        return "".join(f"100644 {blob}\t{path}\n" for blob, path in zip(blobs, files, strict=True))

    @contextlib.contextmanager
    def _index(self) -> Iterator[dict[str, str]]:
        """The environment in which git uses an index of ours."""
        with tempfile.TemporaryDirectory() as folder:
            yield {"GIT_INDEX_FILE": os.path.join(folder, "index")}

    def _fetched(self) -> str | None:
        remote = f"refs/remotes/origin/{self.name}"
        known = git_or_none(self.root, "rev-parse", "--verify", "--quiet", remote)
        if known is None and git_or_none(self.root, "remote", "get-url", "origin") is not None:
            git_or_none(self.root, "fetch", "--quiet", "--depth=1", "origin", f"+{self.ref}:{remote}")
            known = git_or_none(self.root, "rev-parse", "--verify", "--quiet", remote)
        return known
