"""By which a changed input is found."""

import pytest
import torch

from benchmarks.worker.arms import WORDS, _marks, _words

BYTES = torch.arange(48, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("tensor", "kind"),
    [
        (BYTES, torch.int64),
        (BYTES[8:], torch.int64),
        (BYTES[4:], torch.int32),
        (BYTES[8:20], torch.int32),
        (BYTES[2:], torch.int16),
        (BYTES[1:], torch.uint8),
        (BYTES.view(torch.float16).reshape(4, 6), torch.int64),
        (BYTES.view(torch.float16).reshape(4, 6).T, torch.int64),
        (BYTES.view(torch.float8_e4m3fn)[:47], torch.uint8),
        (torch.zeros(0, dtype=torch.float16), torch.int64),
        (torch.tensor(1.5), torch.int32),
    ],
)
def test_bits_are_read_as_words_as_wide_as_they_can_be(tensor, kind):
    words = _words(tensor)
    assert words.dtype is kind
    assert words.nbytes == tensor.nbytes
    assert WORDS[words.element_size()] is kind


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.int64])
def test_one_changed_bit_is_seen_and_by_its_copy_and_name(dtype):
    copies = [{"x": torch.zeros(6, dtype=dtype), "y": torch.ones(3, dtype=dtype)} for _ in range(2)]
    before = _marks([*copies, None])
    assert _marks([*copies, None]) == before
    copies[1]["y"].view(torch.uint8)[-1] ^= 1
    after = _marks([*copies, None])
    assert [(copy, name) for copy in range(2) for name in "xy" if before[copy][name] != after[copy][name]] == [(1, "y")]
    assert after[2] == {}
