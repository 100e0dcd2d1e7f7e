"""The switches of `training`: what each does."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import fx, nn

from pipeline.errors import ConfigError
from stages.nets.channels import find_channels
from stages.nets.config import NetworkConfig
from stages.nets.registry import architecture_of, build, save_architecture
from stages.prune.training import write_network
from stages.training.averaging import Average
from stages.training.config import DistillationConfig, TrainingConfig
from stages.training.device import at_precision
from stages.training.distillation import Teacher, load_teacher
from stages.training.layout import UnitStrideConv2d, with_quick_kernels
from stages.training.mixing import mixed
from stages.training.stochastic_depth import residuals, with_stochastic_depth

SHAPE, NETWORK = (12, 6, 1), NetworkConfig(width=6, blocks=1, input_shape=(12, 6, 1), classes=3)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "prune"
    folder.mkdir()
    torch.manual_seed(0)
    save_architecture(folder / "architecture.json", architecture_of(NETWORK, (6, 6)))
    write_network(folder / "network.pt", build(NETWORK))
    return folder.parent


def test_the_average_is_that_of_the_weights_and_starts_anew_with_another_network():
    net, average = nn.Linear(1, 1, bias=False), Average(0.5)
    expected = None
    for step in range(1, 40):
        nn.init.constant_(net.weight, float(step))
        average.update(net)
        share = 1 - min(0.5, step / (step + 10))
        expected = float(step) if expected is None else expected + share * (step - expected)
    assert float(average.values["weight"]) == pytest.approx(expected, rel=1e-5)
    average.put_into(net)
    assert net.weight.item() == pytest.approx(expected, rel=1e-5)
    wider = nn.Linear(2, 1, bias=False)
    average.update(wider)
    assert torch.equal(average.values["weight"], wider.weight.detach())


def test_mixup_shares_the_labels_as_it_shares_the_pixels():
    x, y = torch.eye(4)[:, None, None, :] * 1.0, torch.arange(4)
    found, labels = mixed(x, y, 0.4, 0.0, seed=1, step=5)
    assert torch.allclose(found[1, 0, 0], labels.share * x[1, 0, 0] + (1 - labels.share) * x[0, 0, 0])
    assert labels.second.tolist() == [3, 0, 1, 2]
    logits = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    soft = labels.share * torch.eye(4) + (1 - labels.share) * torch.eye(4)[labels.second]
    expected = nn.functional.cross_entropy(logits, soft, label_smoothing=0.1)
    assert float(labels.loss(logits, 0.1)) == pytest.approx(float(expected), rel=1e-6)


def test_cutmix_pastes_one_box_and_counts_its_pixels():
    x = torch.arange(3.0).reshape(3, 1, 1, 1).expand(3, 2, 9, 7)
    shares = set()
    for step in range(30):
        found, labels = mixed(x, torch.arange(3), 0.0, 1.0, seed=0, step=step)
        pasted = found[1, 0] == 0
        rows, columns = pasted.any(1).nonzero(), pasted.any(0).nonzero()
        assert int(pasted.sum()) == len(rows) * len(columns)
        assert labels.share == pytest.approx(1 - int(pasted.sum()) / 63)
        shares.add(labels.share)
    assert len(shares) > 10


def test_a_teacher_pulls_towards_what_it_says(teacher):
    found = load_teacher(DistillationConfig(teacher=teacher, weight=1.0), SHAPE, 3, torch.device("cpu"))
    assert isinstance(found, Teacher) and not any(p.requires_grad for p in found.net.parameters())
    x = torch.randn(5, 1, 12, 6, generator=torch.Generator().manual_seed(0))
    same = found.net(x)
    assert float(found.joined(torch.tensor(9.0), same, x)) == pytest.approx(0, abs=1e-6)
    other = float(found.joined(torch.tensor(9.0), -same, x))
    told, said = ((z / 4).softmax(1).double() for z in (same, -same))
    assert other == pytest.approx(16 * float((told * (told / said).log()).sum(1).mean()), rel=1e-4)


def test_a_teacher_that_does_not_fit_is_one_sentence(teacher, tmp_path):
    cpu = torch.device("cpu")
    with pytest.raises(ConfigError, match=r"teacher: .*: holds no architecture.json and network.pt; name a run's"):
        load_teacher(DistillationConfig(teacher=tmp_path), SHAPE, 3, cpu)
    with pytest.raises(ConfigError, match=r"is made for \(12, 6, 1\) and 3 classes, the data are \(12, 6, 1\) and 4;"):
        load_teacher(DistillationConfig(teacher=teacher), SHAPE, 4, cpu)
    before = TrainingConfig(distillation={"teacher": teacher}).outside()
    weights = teacher / "prune" / "network.pt"
    content = weights.read_bytes()
    weights.write_bytes(content + b"\0")
    assert TrainingConfig(distillation={"teacher": teacher}).outside() != before, "another teacher, another result"
    weights.write_bytes(content)


@pytest.mark.parametrize(
    "network, count", [({"name": "resnet8"}, 3), ({"name": "mobilenet_v2", "extras": False}, 10), ({"width": 8}, 0)]
)
def test_every_residual_is_found_at_the_end_of_its_longer_branch(network, count):
    shape = (32, 32, 3)
    net = build(NetworkConfig(**network, input_shape=shape, classes=3))
    found = residuals(find_channels(net, shape).module)
    assert len(found) == count
    assert all("shortcut" not in module for module in found)


def test_a_residual_is_left_out_as_often_as_asked_and_never_when_it_counts():
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Conv2d(1, 1, 1, bias=False)

        def forward(self, x):
            return x + self.inner(x)

    net = Residual()
    nn.init.constant_(net.inner.weight, 2.0)
    with_stochastic_depth(net, fx.symbolic_trace(net), 0.25)
    torch.manual_seed(0)
    x = torch.ones(4000, 1, 1, 1)
    seen = net.train()(x).flatten()
    assert sorted(set(seen.tolist())) == pytest.approx([1.0, 1 + 2 / 0.75])
    assert float((seen == 1.0).float().mean()) == pytest.approx(0.25, abs=0.03)
    assert torch.equal(net.eval()(x), 3 * x)


def test_what_a_step_mixes_depends_on_seed_and_step_alone():
    x, y = torch.randn(4, 1, 5, 5), torch.arange(4)
    draws = [mixed(x, y, 0.3, 0.3, seed, step)[1].share for seed, step in ((0, 1), (0, 1), (0, 2), (1, 1))]
    assert draws[0] == draws[1] and len(np.unique(draws)) == 3


def test_in_bfloat16_only_convolutions_over_channels_are_short_and_only_in_training():
    layers = [nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 1, stride=2)]
    net = nn.Sequential(*layers)
    x = torch.randn(2, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    exact = with_quick_kernels(deepcopy(net))
    short = at_precision(with_quick_kernels(net), "bfloat16")
    seen = []
    for each in (exact, short):
        maps = [x]
        for layer in each:
            maps.append(layer(maps[-1]))
        seen.append(maps)
    assert [torch.equal(one, other) for one, other in zip(*seen, strict=True)] == [True, True, True, True, False]
    apart = (seen[0][-1] - seen[1][-1]).abs().max() / seen[0][-1].abs().max()
    assert seen[1][-1].dtype == torch.float32 and 2**-12 < apart < 2**-7
    seen[1][-1].square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.dtype == torch.float32 for parameter in net.parameters())
    assert torch.equal(deepcopy(short).eval()(x), exact.eval()(x)), "copies keep it, and eval is exact"
    assert at_precision(exact, "float32") is exact and type(exact[3]) is UnitStrideConv2d
