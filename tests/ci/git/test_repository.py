"""Commits and worktrees of a real repository: the base, the shallow clone, the missing git, equal kernels."""

from __future__ import annotations

import os

import pytest

from ci.commands import doctor
from ci.git import checkout as worktrees
from ci.git.command import GitError
from ci.git.repository import Repository, history_order
from tests.kit import commit, commits_of_one_second, git
from tests.kit import repository as repository_of


@pytest.fixture
def repo(tmp_path):
    return repository_of(tmp_path / "repo", kernels__a="one", readme="first")


def test_three_dots_name_where_a_branch_left(repo):
    left = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-q", "-b", "topic")
    topic = commit(repo, kernels__a="two")
    git(repo, "checkout", "-q", "main")
    commit(repo, readme="second")
    for revision in (f"HEAD...{topic}", f"...{topic}", "main...topic", "topic...main"):
        assert Repository(repo).resolve(revision).hash == left
    for unknown in ("main...nowhere", "main...--all"):
        with pytest.raises(GitError, match="names no commit"):
            Repository(repo).resolve(unknown)


def test_the_base_is_where_a_branch_left_main_or_the_parent_on_main(repo):
    def base():
        found = Repository(repo).default_base()
        return found and found.hash

    assert base() is None, "of the first commit"
    left = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-q", "-b", "topic")
    commit(repo, kernels__a="two")
    commit(repo, kernels__a="three")
    assert base() == left
    git(repo, "checkout", "-q", "main")
    commit(repo, readme="second")
    assert base() == left


@pytest.mark.parametrize("name", ["rocm-7.2+fixes", "a@b", "x#y", "fix/ünï", "a..b", "-x", "a b", "@{-1}"])
def test_the_base_branch_of_a_pull_request_may_have_any_name_that_git_takes(repo, name, monkeypatch):
    monkeypatch.setenv("GITHUB_BASE_REF", name)
    if name in ("a..b", "-x", "a b", "@{-1}"):
        with pytest.raises(GitError, match="check-ref-format"):
            Repository(repo).default_base()
        return
    base = git(repo, "rev-parse", "HEAD")
    git(repo, "update-ref", f"refs/remotes/origin/{name}", base)
    git(repo, "checkout", "-q", "-b", "topic")
    commit(repo, kernels__a="two")
    git(repo, "update-ref", "refs/heads/main", "HEAD")
    found = Repository(repo).default_base()
    assert found is not None
    assert found.hash == base


def test_a_shallow_clone_has_no_base_and_says_how_to_get_it(repo, tmp_path):
    old = git(repo, "rev-parse", "HEAD")
    commit(repo, readme="second")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repo}", "shallow")
    shallow = Repository(tmp_path / "shallow")
    assert shallow.is_shallow()
    assert shallow.default_base() is None
    with pytest.raises(GitError, match="unshallow"):
        shallow.resolve(old)


def test_a_repository_without_a_commit_says_so(tmp_path):
    git(tmp_path, "init", "-q")
    for call in (lambda: Repository(tmp_path).resolve("HEAD"), lambda: Repository(tmp_path).working_tree()):
        with pytest.raises(GitError, match="has no commit yet"):
            call()


def test_an_unknown_revision_is_named(repo):
    with pytest.raises(GitError, match="no-such-branch"):
        Repository(repo).resolve("no-such-branch")
    with pytest.raises(GitError, match="not a revision"):
        Repository(repo).resolve("--upload-pack=evil")


def test_a_checkout_is_a_worktree_of_that_commit_and_reused(repo):
    first = git(repo, "rev-parse", "HEAD")
    commit(repo, kernels__a="two")
    tree = Repository(repo).checkout(first, "base")
    assert (tree.path / "kernels" / "a").read_text() == "one"
    assert Repository(repo).checkout(first, "base").path == tree.path


def test_no_hook_runs_where_a_commit_is_checked_out_to_be_measured(repo, tmp_path):
    hook = repo / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    hook.chmod(0o755)
    first, second = git(repo, "rev-parse", "HEAD"), commit(repo, readme="second")
    tree = Repository(repo).checkout(first, "base").path
    worktrees.check_out(repo, tree, second, in_place=True)
    assert git(tree, "rev-parse", "HEAD") == second
    assert not (tmp_path / "ran").exists()


def test_uncommitted_changes_make_a_tree_dirty_but_results_do_not(repo):
    assert not Repository(repo).changed()
    (repo / "results").mkdir()
    (repo / "results" / "x.json").write_text("{}")
    assert not Repository(repo).changed()
    (repo / "kernels" / "a").write_text("edited")
    for name in ("new one", "b", "c"):
        (repo / name).write_text("x")
    assert Repository(repo).changed() == ("kernels/a", "b", "c", "new one")
    label = Repository(repo).working_tree().label
    assert label.endswith(" + uncommitted changes (kernels/a, b, c and 1 more)")


def test_a_page_is_no_change_of_the_tree_and_a_folder_of_its_name_is(repo):
    (repo / "site").mkdir()
    (repo / "site/index.html").write_text("x")
    assert Repository(repo).changed() == ("site/",)
    (repo / "site/.ridgeline-site").touch()
    assert Repository(repo).changed() == ()


@pytest.mark.parametrize("place", ["swept.jsonl", "a[1] *.jsonl.gz", "out/deep/swept.jsonl", "back\\slash.jsonl"])
def test_what_a_command_writes_beside_its_trial_file_is_no_change_of_the_tree(repo, place):
    out = repo / place
    stem = out.name.split(".")[0]
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = (f".{out.name}.lock", f".{stem}.json.17.draft")
    for name in (out.name, *beside):
        (out.parent / name).write_text("x")
    assert Repository(repo).changed()
    assert not Repository(repo).changed(out)
    assert Repository(repo).changed(out.with_name("other.jsonl"))
    out.with_name(f"{stem}.py").write_text("x")
    assert Repository(repo).changed(out)


def test_a_trial_file_elsewhere_hides_no_change(repo, tmp_path):
    assert not Repository(repo).changed(tmp_path / "elsewhere.jsonl")
    (repo / "kernels" / "a").write_text("edited")
    assert Repository(repo).changed(tmp_path / "elsewhere.jsonl")


def test_the_commits_of_a_range_that_change_a_path(repo):
    first = git(repo, "rev-parse", "HEAD")
    second = commit(repo, kernels__a="two")
    third = commit(repo, readme="second")
    repository = Repository(repo)
    assert [one.hash for one in repository.commits("", "HEAD")] == [first, second, third]
    assert [one.hash for one in repository.commits("", "HEAD", ["kernels"])] == [first, second]
    assert repository.commits(first, third) == [repository.resolve(second), repository.resolve(third)]
    with pytest.raises(GitError, match="gone"):
        repository.commits("gone", "HEAD")


def test_a_borrowed_checkout_is_given_back_unless_it_was_there(repo):
    repository = Repository(repo)
    first = repository.resolve("HEAD")
    with repository.borrowed(first) as path:
        assert (path / "kernels" / "a").is_file()
    assert not path.exists()
    assert str(path) not in git(repo, "worktree", "list")
    kept = repository.checkout(first.hash, "base").path
    with repository.borrowed(first) as path:
        assert path == kept
    assert kept.exists()


def test_the_order_of_history_where_dates_do_not_tell_it(tmp_path):
    commits = commits_of_one_second(tmp_path, 6)
    asked = [*sorted(commits), "1" * 40]
    assert sorted(asked, key=lambda one: history_order(tmp_path, asked).get(one, 99)) == [*commits, "1" * 40]
    (tmp_path / "sub").mkdir()
    assert history_order(tmp_path / "sub", commits[3:4])[commits[3]] == 3


def test_without_a_repository_or_git_there_is_no_order(tmp_path, monkeypatch):
    assert history_order(tmp_path, ["1" * 40]) == {}
    assert history_order(tmp_path / "nothing", ["1" * 40]) == {}
    commits_of_one_second(tmp_path, 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert history_order(tmp_path, ["1" * 40]) == {}


def test_a_repository_of_another_user_is_named_with_the_command_that_allows_it(repo, monkeypatch):
    named = repo.rename(repo.with_name("a b" * 60))
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)  # a user's own may allow every folder
    allow = f"git config --global --add safe.directory '{named}'"
    with pytest.raises(GitError, match=f"belongs to another user, and git does not read it: `{allow}` allows it"):
        Repository(named)
    finding = doctor._clone(named)
    assert (finding.level, allow in finding.what) == ("warning", True)


@pytest.mark.parametrize("span", ["HEAD^..HEAD", "HEAD..HEAD"])
def test_a_range_where_a_commit_is_expected_is_taken_apart(repo, span):
    with pytest.raises(
        GitError, match=f"It is a range: name its ends apart, `{span.replace('..', ' ')}`".replace("^", r"\^")
    ):
        Repository(repo).resolve(span)


def test_what_commands_write_is_no_change_that_git_sees(repo):
    Repository(repo).checkout("HEAD", "base")
    assert (repo / ".ridgeline" / "trees").is_dir()
    assert git(repo, "status", "--porcelain") == ""
