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

from ci.git.command import GitError, git, git_or_none, succeeds
from ci.git.push import author, authority

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
        if name.startswith("-") or git_or_none(folder, "check-ref-format", f"refs/heads/{name}") is None:
            raise GitError(f"{name!r} cannot be the name of a branch")
        top = git_or_none(folder, "rev-parse", "--show-toplevel")
        if top is None:
            raise GitError(f"{folder} is not inside a git repository; name a folder or an object store")
        return cls(Path(top), name)

    @property
    def ref(self) -> str:
        """Its full name."""
        return f"refs/heads/{self.name}"

    @property
    def exists(self) -> bool:
        """Whether this repository has it as a branch of its own."""
        return self._known(self.ref) is not None

    def tip(self) -> str | None:
        """Its newest commit: ours, else what was fetched of it, else what `origin` has; None if nobody has it."""
        return self._known(self.ref) or self._known(self._remote) or self._fetched()

    def read(self, path: str) -> bytes:
        """The content of a file, ours or, where we lack it, what `origin` has now.  Raises GitError."""
        for tip in (self._known(self.ref), self._known(self._remote), self._fetched()):
            if tip and self._known(f"{tip}:{path}"):
                return self._content(tip, path)
        raise GitError(f"no commit of the branch {self.name} has it, neither here nor at origin")

    def _content(self, tip: str, path: str) -> bytes:
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
            own, tip = self._known(self.ref), self.tip()
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
        own, other = git(self.root, "rev-parse", self.ref), git(self.root, "rev-parse", other)
        with self._index() as env:
            git(self.root, "read-tree", own, env=env)
            theirs = git(self.root, "ls-tree", "-r", "--full-tree", other) + "\n"
            git(self.root, "update-index", "--add", "--index-info", stdin=theirs, env=env)
            commit = self._commit(git(self.root, "write-tree", env=env), [own, other], "Unite samples")
        git(self.root, "update-ref", self.ref, commit, own)
        return commit

    def push(self, env: Mapping[str, str], remote: str = "origin") -> str:
        """Push it, united with what others pushed meanwhile; returns its newest commit.  env: who we are there.

        Raises GitError.
        """
        for _ in range(ATTEMPTS):
            if succeeds(self.root, "push", "--quiet", remote, f"{self.ref}:{self.ref}", env=env):
                return git(self.root, "rev-parse", self.ref)
            git(self.root, "fetch", "--quiet", remote, f"+{self.ref}:{self._remote}", env=env)
            self.unite(self._remote)
        raise GitError(
            f"{remote} refused {self.name} {ATTEMPTS} times; it is committed here: git push {remote} {self.name}"
        )

    def _commit(self, tree: str, parents: list[str], message: str) -> str:
        if len(parents) == 1 and git(self.root, "rev-parse", f"{parents[0]}^{{tree}}") == tree:
            return parents[0]
        options = [word for parent in parents for word in ("-p", parent)]
        return git(self.root, "commit-tree", tree, *options, "-m", message, env=author())

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

    @property
    def _remote(self) -> str:
        return f"refs/remotes/origin/{self.name}"

    def _known(self, name: str) -> str | None:
        """The object that git knows by this name."""
        return git_or_none(self.root, "rev-parse", "--verify", "--quiet", name)

    def _fetched(self) -> str | None:
        """What `origin` has now, None if it cannot be asked or has none."""
        if git_or_none(self.root, "remote", "get-url", "origin") is None:
            return None
        wanted = f"+{self.ref}:{self._remote}"
        if git_or_none(self.root, "fetch", "--quiet", "origin", wanted, env=authority()) is None:
            return None
        return self._known(self._remote)
