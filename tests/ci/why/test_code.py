"""What is said of machine code: cache modifiers by kind, and that nothing differs where nothing does."""

from __future__ import annotations

import pytest

from ci.isa.compiled import CompiledTree, parse
from ci.why.suspects import SAME_CODE, differences, modifiers
from tests.ci.isa.trees import ROOT

RECORDED = ROOT / "tests" / "recordings" / "isa"


def recorded(version: str) -> CompiledTree:
    return parse((RECORDED / f"triton-{version}.json").read_text(), version)


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        (
            "\tglobal_store_dwordx4 v[0:1], v[2:5], off\n\tglobal_load_dword v1, v[2:3], off sc0 sc1\n",
            "\tglobal_store_dwordx4 v[0:1], v[2:5], off nt\n\tglobal_load_dword v1, v[2:3], off sc0 sc1\n",
            ["cache modifiers: store nt 0 → 1"],
        ),
        ("\tbuffer_load_dword v1, v2, s[0:3], 0 offen sc1\n", "", ["cache modifiers: load sc1 1 → 0"]),
        (
            "\tLDG.E.EF.128 R4, desc[UR4][R2.64]\n\tSTG.E.128 desc[UR4][R2.64], R4\n",
            "\tLDG.E.128 R4, desc[UR4][R2.64]\n\tSTG.E.STRONG.GPU desc[UR4][R2.64], R4\n",
            ["cache modifiers: LDG.EF 1 → 0, STG.STRONG.GPU 0 → 1"],
        ),
        ("\tv_add_f32 v0, v1, v2\n", "\ts_barrier\n", []),
    ],
)
def test_cache_modifiers_are_counted_by_kind(base: str, head: str, said: list[str]) -> None:
    assert list(modifiers(base, head)) == said


def test_equal_code_says_where_to_look(tmp_path) -> None:
    tree = recorded("3.8.0")
    assert list(differences(tree, tree, tmp_path)) == [SAME_CODE]


def test_what_two_compilers_make_differently_is_said_by_the_rules(tmp_path) -> None:
    said = list(differences(recorded("3.6.0"), recorded("3.8.0"), tmp_path))
    assert len(said) > 3
    assert SAME_CODE not in said
