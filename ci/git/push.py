"""Commit new records and push them to a branch that others push to as well.

Two nights, two machines or a person may push at the same time: a refused push is followed by a fetch and a rebase.
Records are files named by machine and commit, so a rebase conflicts only where two writers recorded the same commit on
the same machine; that is reported, and the trial files are still there to be recorded again.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import os
import re
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ci.git.command import GitError, git, git_or_none, is_branch_name, succeeds

PUSHES = 5
IDENTITY = ("ridgeline", "ridgeline@users.noreply.github.com")
"""Author of the commits: the name shows that a program made them."""

SERVER = "https://github.com"
"""Where a token belongs unless GITHUB_SERVER_URL says otherwise (GitHub Enterprise)."""


class PushError(Exception):
    """Records were committed or pushed only in part; the text says what is where and what to do."""


def push_records(
    folder: Path,
    branch: str,
    message: str,
    token: str = "",
    sleep: Callable[[float], None] = time.sleep,
    server: str = SERVER,
) -> str:
    """Commit everything new under `folder` and push it to `branch`; returns the commit, "" if there was nothing new.

    token: of `server`.  It goes to that server only, over https only, and not on to where a redirection points; it is
    passed in the environment, so it appears neither in arguments nor in the repository's configuration.  Only `folder`
    is committed, whatever else has changed.
    """
    if not is_branch_name(branch):
        raise PushError(f"{branch!r} cannot be the name of a branch (`git check-ref-format --branch NAME`)")
    where, env = folder.resolve().parent, {**author(), **_authority(token, server)}
    try:
        if not _commit(where, env, folder.name, message):
            return ""
        for attempt in range(PUSHES):
            if succeeds(where, "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}", env=env):
                return git(where, "rev-parse", "HEAD")
            sleep(2.0**attempt)
            _rebase(where, env, branch)
    except GitError as error:
        raise PushError(str(error)) from error
    raise PushError(f"origin refused {branch} {PUSHES} times; the records are committed here, push them by hand")


def pushed(folder: Path, branch: str, message: str) -> str:
    """push_records with the token of the environment, where there is one; a sentence for people."""
    token, server = _known_token()
    commit = push_records(folder, branch, message, token=token, server=server)
    return f"pushed {commit[:8]} to {branch}" if commit else "nothing new to push"


def _commit(where: Path, env: Mapping[str, str], name: str, message: str) -> bool:
    """Commit the folder `name`; whether there was anything new in it.  Drafts of writers that were killed stay out."""
    git(where, "add", "--", name, f":(exclude,glob){name}/**/.*.draft")
    if succeeds(where, "diff", "--cached", "--quiet", "--", name):
        return False
    git(where, "commit", "--quiet", "--message", message, "--", name, env=env)
    return True


def _rebase(where: Path, env: Mapping[str, str], branch: str) -> None:
    git(where, "fetch", "--quiet", "origin", branch, env=env)
    if not succeeds(where, "rebase", "--quiet", "--autostash", "FETCH_HEAD", env=env):
        succeeds(where, "rebase", "--abort")
        raise PushError(
            f"origin/{branch} recorded the same commit on the same machine meanwhile; the records are committed here:"
            " pull, then record the trial files again"
        )


def author() -> dict[str, str]:
    """The variables that tell git who commits."""
    named = zip(("NAME", "EMAIL"), IDENTITY, strict=True)
    return {f"GIT_{role}_{key}": value for key, value in named for role in ("AUTHOR", "COMMITTER")}


def authority() -> dict[str, str]:
    """The variables by which git shows the environment's token to its server, none without a token."""
    return _authority(*_known_token())


def _known_token() -> tuple[str, str]:
    """The token of the environment, "" without one, and its server."""
    return os.environ.get("GITHUB_TOKEN", ""), os.environ.get("GITHUB_SERVER_URL") or SERVER


def _authority(token: str, server: str) -> dict[str, str]:
    """How git is to show the token: to URLs of this server only (git matches scheme, host and port).

    Git would keep the header after a redirection, so none is followed.  Raises PushError for a server without https.
    """
    if not token:
        return {}
    if not re.fullmatch(r"https://[\w.-]+(:\d+)?/?", server):
        raise PushError(
            f"GITHUB_SERVER_URL is {server!r:.100}; a token is sent to https://HOST only: unset GITHUB_TOKEN"
        )
    secret = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    settings = {
        f"http.{server.rstrip('/')}/.extraheader": f"Authorization: Basic {secret}",
        "http.followRedirects": "false",
    }
    env = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


# A branch that holds data and no source: read and added to without touching the work tree, the index or HEAD.
#
# Files in it are only ever added, under names that say their content; so two writers never conflict, and a push that is
# refused is followed by uniting both trees.


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

    def push(self, env: Mapping[str, str]) -> str:
        """Push it, united with what others pushed meanwhile; returns its newest commit.  env: who we are there.

        Raises GitError.
        """
        for _ in range(ATTEMPTS):
            if succeeds(self.root, "push", "--quiet", "origin", f"{self.ref}:{self.ref}", env=env):
                return git(self.root, "rev-parse", self.ref)
            git(self.root, "fetch", "--quiet", "origin", f"+{self.ref}:{self._remote}", env=env)
            self.unite(self._remote)
        raise GitError(
            f"origin refused {self.name} {ATTEMPTS} times; it is committed here: git push origin {self.name}"
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
