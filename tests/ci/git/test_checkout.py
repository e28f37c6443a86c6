"""A checkout has the submodules, the large files and what the project prepares; what it lacks is named."""

from __future__ import annotations

import hashlib

import pytest

from ci.git.command import GitError
from ci.git.repository import Repository
from tests.kit import commit, git
from tests.kit import repository as repository_of


@pytest.fixture
def repo(tmp_path):
    return repository_of(tmp_path / "repo", kernels__a="one")


def test_a_submodule_is_checked_out_at_each_commit_from_the_clone_alone(repo, tmp_path):
    library = repository_of(tmp_path / "library", code="first")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", library, "lib")
    first = commit(repo)
    commit(library, code="second")
    git(repo / "lib", "-c", "protocol.file.allow=always", "pull", "-q")
    second = commit(repo)
    library.rename(tmp_path / "away")
    sides = [Repository(repo).checkout(one, "base") for one in (first, second)]
    assert [(side.path / "lib" / "code").read_text() for side in sides] == ["first", "second"]
    assert [side.missing for side in sides] == [{}, {}]
    assert git(sides[0].path, "status", "--porcelain") == ""
    git(tmp_path, "clone", "-q", repo, "bare_of_it")
    lacking = Repository(tmp_path / "bare_of_it").checkout(first, "base").missing
    assert list(lacking) == ["lib/"]
    assert "git submodule update --init --recursive" in lacking["lib/"]


def test_what_a_project_prepares_is_made_once_for_a_commit_and_a_line(repo):
    def prepared(line):
        (repo / "ridgeline.toml").write_text(f"checkout = {{prepare = {line!r}}}\n")
        return (Repository(repo).checkout(first, "base").path / "made").read_text()

    first = git(repo, "rev-parse", "HEAD")
    assert prepared("echo 1 >>made") == "1\n"
    assert prepared("echo 1 >>made") == "1\n", "kept"
    assert prepared("echo 2 >>made") == "2\n", "made again for another line"
    with pytest.raises(GitError, match="exit code 7.*\nno compiler"):
        prepared("echo no compiler; exit 7")


def test_a_clean_head_is_prepared_as_base_is(repo):
    commit(repo, **{"ridgeline.toml": 'checkout = {prepare = "echo 1 >made"}\n'})
    head = Repository(repo).head_of_comparison()
    assert (head.path / "made").exists()
    assert head.path != repo
    (repo / "kernels" / "a").write_text("edited")
    assert Repository(repo).head_of_comparison().path == repo


def test_a_large_file_comes_from_the_clone_or_is_named(repo):
    digest = hashlib.sha256(b"weights").hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 7\n"
    first = commit(repo, **{".gitattributes": "*.bin filter=lfs\n", "a.bin": pointer})
    lacking = Repository(repo).checkout(first, "base").missing
    assert list(lacking) == ["a.bin"]
    assert "git lfs pull" in lacking["a.bin"]
    store = repo / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4]
    store.mkdir(parents=True)
    (store / digest).write_text("weights")
    second = commit(repo, readme="x")
    side = Repository(repo).checkout(second, "base")
    assert (side.path / "a.bin").read_text() == "weights"
    assert side.missing == {}


def test_the_base_of_a_merge_that_ci_made_is_its_first_parent(repo):
    git(repo, "update-ref", "refs/remotes/origin/main", "HEAD")
    target = commit(repo, readme="of others")
    git(repo, "checkout", "-q", "-b", "topic")
    commit(repo, kernels__a="two")
    git(repo, "checkout", "-q", "--detach", target)
    git(repo, "merge", "-q", "--no-ff", "-m", "Merge topic", "topic")
    git(repo, "branch", "-q", "-D", "main")
    base = Repository(repo).default_base()
    assert base is not None
    assert base.hash == target


def test_a_merge_of_main_into_a_topic_is_no_merge_of_ci(repo):
    git(repo, "checkout", "-q", "-b", "topic")
    commit(repo, kernels__a="two")
    git(repo, "checkout", "-q", "main")
    main = commit(repo, readme="of others")
    git(repo, "checkout", "-q", "topic")
    git(repo, "merge", "-q", "--no-ff", "-m", "Merge main", "main")
    git(repo, "checkout", "-q", "--detach")
    base = Repository(repo).default_base()
    assert base is not None
    assert base.hash == main
