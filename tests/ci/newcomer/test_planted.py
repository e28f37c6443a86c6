"""A few of the combinations that `python -m tests.ci.newcomer.planted` tries all of."""

import pytest

from tests.ci.newcomer import planted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "install", "verb"),
    [
        ("flat", "editable", "verify"),
        ("src", "path", "isa"),
        ("namespace", "none", "adopt"),
        ("namespace", "path", "run"),
    ],
)
def test_a_change_of_what_a_declaration_imports_is_found(tmp_path, layout, install, verb):
    seen = list(planted.VERBS[verb](planted.made(tmp_path, layout, install)))
    assert all(found for found, _ in seen), seen
