"""Renderings against golden files, and code next to code."""

from __future__ import annotations

from ci.isa.judge import compare
from ci.isa.rules import IsaPolicy
from ci.isa.text import code_diff, listing, terminal
from tests.ci.isa.documents import REMOTE, document, entry

COLLAPSED = REMOTE | {
    "store_widths": {"2": 128},
    "store_names": {"global_store_short": 128},
    "vgpr": 136,
    "remote_store_widths": {"2": 128},
    "remote_store_names": {"global_store_short": 128},
}
BASE = document(
    entry("all_gather", cases=["m1024", "m2048", "m4096", "m8192", "m16384"], **REMOTE),
    entry("gemm"),
    entry("wgrad", label="256x256x64"),
    entry("old"),
    entry("broken"),
    entry("quiet"),
    entry("never", status="failed"),
    broken={"kernels.<b>": "ImportError: @someone [link](http://x)"},
)
HEAD = document(
    entry("all_gather", "b", cases=["m1024", "m2048", "m4096", "m8192", "m16384"], **COLLAPSED),
    entry("gemm", "b", occupancy=3, vgpr=132),
    entry("wgrad", "b", label="256x256x64", code_bytes=3600),
    entry("new"),
    entry("broken", status="failed", why="the compiler says: `x` | y"),
    entry("quiet"),
    entry("never", status="failed"),
    triton="3.9.0",
)
JUDGEMENT = compare(BASE, HEAD, IsaPolicy())


def test_the_terminal(golden):
    golden("isa/terminal.txt", terminal(JUDGEMENT))


def test_what_many_configurations_share_is_told_once():
    def side(code, *, narrow, bytes_):
        stores = COLLAPSED if narrow else REMOTE
        return document(
            *(
                entry("all_gather", code, arch=arch, cases=[case], **stores)
                for arch in ("gfx942", "gfx950")
                for case in ("small", "large")
            ),
            *(
                entry("gemm", code, arch=arch, cases=[case], code_bytes=bytes_)
                for arch in ("gfx942", "gfx950")
                for case in ("a", "b", "c")
            ),
        )

    judgement = compare(side("a", narrow=False, bytes_=3400), side("b", narrow=True, bytes_=3404), IsaPolicy())
    assert terminal(judgement).splitlines()[1:] == [
        "SLOWER  all_gather/triton on gfx942 (small)",
        "    ! stores to remote ranks went from 16 B to 2 B per lane: 128 global_store_short",
        "      VGPRs: 86 → 136",
        "    + by the same rules 3 more: 1 on gfx942, 2 on gfx950",
        "CHANGED  gemm/triton on gfx942 (a)",
        "      code bytes: 3400 → 3404",
        "    + by the same rules 5 more: 2 on gfx942, 3 on gfx950",
    ]


def test_the_listing(golden):
    head = document(
        entry("gemm"),
        entry("all_gather", **REMOTE, bytes_per_remote_store=16.0),
        entry("large", will_not_load="it needs 98304 B of LDS", lds_bytes=98304),
        entry("never", status="failed", why="the compiler says no"),
        broken={"kernels.x": "ImportError: y"},
        failures={"gfx950": "it died"},
    )
    golden("isa/listing.txt", listing(head))


CODE = """\
; vgpr 10
; no loop
\ts_load_dwordx2 s[2:3], s[0:1], 0x0
; loop L1 depth 1
L1:
\tglobal_load_dwordx2 v[2:3], v9, s[6:7]
; loop L2 depth 2
L2:
\tv_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]
\ts_cbranch_scc1 L2
; loop L1 depth 1
\tglobal_store_dwordx4 v[6:7], v[20:23], off
\ts_cbranch_scc1 L1
; no loop
\ts_endpgm
"""
SHORT = CODE.replace(
    "\tglobal_store_dwordx4 v[6:7], v[20:23], off\n",
    "\tglobal_store_short v[6:7], v20, off\n\tglobal_store_short v[6:7], v21, off offset:2\n",
)


def test_changed_instructions_are_indented_by_the_depth_of_their_loop():
    assert (
        code_diff(CODE, SHORT)
        == """\
@@ -4,6 +4,7 @@
     _:
     v_mfma_f32_16x16x16_f16 _, _, _, _
     s_cbranch_scc1 _
-  global_store_dwordx4 _, _, off
+  global_store_short _, _, off
+  global_store_short _, _, off offset:2
   s_cbranch_scc1 _
 s_endpgm
"""
    )


def test_registers_and_labels_are_no_change():
    renamed = CODE.replace("s[2:3]", "s[4:5]").replace("v[", "v[1").replace("L1", "L9")
    assert code_diff(CODE, renamed).startswith("The instructions are the same")


def test_a_long_diff_is_cut_and_says_so():
    long = SHORT.replace("\tglobal_store_short v[6:7], v20, off\n", "\tglobal_store_short v[6:7], v20, off\n" * 300)
    shown = code_diff(CODE, long, most=20).splitlines()
    assert len(shown) == 21
    assert shown[-1].endswith(" more lines")
