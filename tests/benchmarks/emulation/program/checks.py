"""Its tests."""

import pytest
import torch

from .kernels import add, add_without_a_mask, double


@pytest.mark.parametrize("n", [1, 1000, 4096])
def test_add(n):
    x, y = torch.randn(2, n, device="cuda")
    torch.testing.assert_close(add(x, y), x + y)


def test_wrong():
    x = torch.ones(8, device="cuda")
    torch.testing.assert_close(add(x, x), x)


def test_tail():
    x = torch.randn(1000, device="cuda")
    add(x, x, add_without_a_mask)


def test_tensor_of_the_host():
    x = torch.randn(8)
    with pytest.raises(ValueError, match=r"cannot be accessed from Triton \(cpu tensor\?\)"):
        add(x, x)


def test_double():
    x = torch.randn(300, device="cuda")
    torch.testing.assert_close(double(x), 2 * x)
