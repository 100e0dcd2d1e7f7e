"""Memory layouts: which network bears which, and shapes on which oneDNN would end the process."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy

import pytest
import torch
from torch import nn

from stages.graph.from_torch.conversion import graph_from_torch
from stages.training.layout import FoldedConv2d, UnitStrideConv2d, laid_out, memory_format_of, with_quick_kernels

# One shortcut convolution as in a residual network, forward and backward, by each way that trains one.
TRAIN = """
import sys, torch
from torch import nn
from stages.graph.arithmetic import torch_kernels
from stages.graph.graph import ConvOptions, Op
from stages.training.layout import with_quick_kernels
batch = int(sys.argv[1])
torch.set_num_threads(2)
x = torch.randn(batch, 8, 32, 32).contiguous(memory_format=torch.channels_last).requires_grad_()
conv = with_quick_kernels(nn.Sequential(nn.Conv2d(8, 18, 1, stride=2))).to(memory_format=torch.channels_last)
op = Op("CONV_2D", "shortcut", (0, 1, 2), (3,), ConvOptions(stride=(2, 2), padding="same"))
for _ in range(3):
    conv(x).sum().backward()
    torch_kernels.weighted(op, x, conv[0].weight, conv[0].bias).sum().backward()
"""


@pytest.mark.parametrize("batch", [63, 64, 75, 77])
def test_strided_shortcuts_train_with_odd_batches(batch):
    done = subprocess.run([sys.executable, "-c", TRAIN, str(batch)], capture_output=True, text=True)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr}"


class Shortcut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.strided, self.plain = nn.Conv2d(4, 6, 1, stride=2), nn.Conv2d(6, 6, 1)
        self.padded, self.wide = nn.Conv2d(6, 6, 1, stride=2, padding=1), nn.Conv2d(6, 3, 3, stride=2)

    def forward(self, x):
        return self.wide(self.padded(self.plain(self.strided(x)))).mean((2, 3))


def test_only_strided_pointwise_layers_change_and_nothing_that_they_compute():
    torch.manual_seed(0)
    net = Shortcut()
    x = torch.randn(6, 4, 23, 21)
    before, names = net(x), list(net.state_dict())
    graph = graph_from_torch(net.eval(), (23, 21, 4))
    assert with_quick_kernels(net) is net and list(net.state_dict()) == names
    changed = [name for name, module in net.named_modules() if isinstance(module, UnitStrideConv2d)]
    assert changed == ["strided"]
    assert torch.allclose(net(x), before, atol=1e-6)
    again = graph_from_torch(net.eval(), (23, 21, 4))
    assert again.ops == graph.ops and [t.shape for t in again.tensors] == [t.shape for t in graph.tensors]


@pytest.mark.parametrize("apart", [2, 3, 8])
@pytest.mark.parametrize("shape", [(5, 6, 25, 1), (3, 6, 16, 4), (2, 6, 7, 3)])
def test_dilated_columns_are_folded_and_stay_what_they_are(apart, shape):
    torch.manual_seed(0)
    plain = nn.Conv2d(6, 6, (3, 1), padding=(apart, 0), dilation=(apart, 1), groups=6)
    quick = with_quick_kernels(deepcopy(plain))
    assert type(quick) is FoldedConv2d
    found = []
    for conv in (plain, quick):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).contiguous(memory_format=torch.channels_last)
        y = conv(x.requires_grad_())
        (y * torch.arange(y.numel()).reshape(y.shape).sin()).sum().backward()
        found.append((y, x.grad, conv.weight.grad, conv.bias.grad))
    for expected, got in zip(*found, strict=True):
        assert torch.allclose(expected, got, atol=1e-4)


@pytest.mark.parametrize(
    "given",
    [
        {"kernel_size": (3, 1), "padding": (1, 0)},
        {"kernel_size": (3, 1), "padding": (2, 0), "dilation": (2, 1), "stride": (2, 1)},
        {"kernel_size": (3, 1), "padding": (1, 0), "dilation": (2, 1)},
        {"kernel_size": (3, 3), "padding": (2, 2), "dilation": (2, 2)},
        {"kernel_size": (3, 1), "padding": "same", "dilation": (2, 1)},
        {"kernel_size": (3, 1), "padding": (2, 0), "dilation": (2, 1), "groups": 3},
    ],
    ids=str,
)
def test_other_depthwise_layers_are_not_folded(given):
    assert type(with_quick_kernels(nn.Conv2d(6, 6, **{"groups": 6} | given))) is nn.Conv2d


class Viewing(nn.Module):
    def forward(self, x):
        return x.view(x.size(0), -1)


def test_a_view_of_a_map_wants_the_contiguous_layout():
    assert memory_format_of(nn.Identity, (4, 4, 3)) is torch.channels_last
    assert memory_format_of(Viewing, (4, 4, 3)) is torch.contiguous_format
    x = torch.randn(2, 3, 4, 4)
    assert laid_out(x, torch.channels_last).is_contiguous(memory_format=torch.channels_last)
    assert laid_out(laid_out(x, torch.channels_last), torch.contiguous_format).is_contiguous()
