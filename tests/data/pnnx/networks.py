"""The networks of the PNNX tests as PyTorch modules, small versions of well-known ones; seeded, so always the same."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        around: list[nn.Module] = []
        if stride != 1 or inputs != outputs:
            around = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.downsample = nn.Sequential(*around)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.downsample(x))


class ResNet18(nn.Module):
    """ResNet-18 (He et al., 2015) with a sixteenth of the channels."""

    def __init__(self, width: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        blocks, inputs = [], width
        for stage in range(4):
            outputs = width << stage
            for number in range(2):
                blocks.append(BasicBlock(inputs, outputs, 2 if stage and not number else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class InvertedResidual(nn.Module):
    """Wider, depthwise, narrow again."""

    def __init__(self, inputs: int, outputs: int, stride: int, ratio: int) -> None:
        super().__init__()
        inner = inputs * ratio
        layers: list[nn.Module] = []
        if ratio != 1:
            layers += [nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6()]
        layers += [nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.ReLU6()]
        layers += [nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.layers = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return x + y if self.shortcut else y


class MobileNetV2(nn.Module):
    """MobileNet v2 (Sandler et al., 2018): all stages, less depth, a quarter of the channels unless `times` is 4."""

    STAGES = ((1, 4, 1, 1), (6, 6, 2, 2), (6, 8, 2, 2), (6, 16, 2, 2), (6, 24, 1, 1), (6, 40, 2, 1), (6, 80, 1, 1))

    def __init__(self, classes: int = 10, times: int = 1) -> None:
        super().__init__()
        inputs, last = 8 * times, 160 * times
        layers: list[nn.Module] = [nn.Conv2d(3, inputs, 3, 2, 1, bias=False), nn.BatchNorm2d(inputs), nn.ReLU6()]
        for ratio, channels, count, stride in self.STAGES:
            outputs = channels * times
            for number in range(count):
                layers.append(InvertedResidual(inputs, outputs, stride if number == 0 else 1, ratio))
                inputs = outputs
        layers += [nn.Conv2d(inputs, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU6()]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean([2, 3]))


def double_convolution(inputs: int, outputs: int) -> nn.Module:
    """Two convolutions, each with a normalization and an activation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """A U-Net (Ronneberger et al., 2015) of three levels, one of them with bilinear upsampling; odd sizes."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        sizes = [(1, width), (width, 2 * width), (2 * width, 4 * width)]
        self.down = nn.ModuleList([double_convolution(*size) for size in sizes])
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.join2 = double_convolution(4 * width, 2 * width)
        self.join1 = double_convolution(3 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down[0](x)
        b = self.down[1](F.max_pool2d(a, 2))
        c = self.down[2](F.max_pool2d(b, 2))
        up = self.up2(c)
        up = F.pad(up, (0, b.shape[3] - up.shape[3], 0, b.shape[2] - up.shape[2]))
        d = self.join2(torch.cat([b, up], 1))
        up = F.interpolate(d, size=a.shape[2:], mode="bilinear", align_corners=True)
        return self.head(self.join1(torch.cat([a, up], 1)))


class ConvSiLU(nn.Module):
    """A convolution, a normalization and SiLU, as YOLOv5 has it."""

    def __init__(self, inputs: int, outputs: int, size: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, (size - 1) // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.bn(self.conv(x)))


class C3(nn.Module):
    """The bottleneck with three convolutions of YOLOv5."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        inner = outputs // 2
        self.cv1, self.cv2, self.cv3 = ConvSiLU(inputs, inner), ConvSiLU(inputs, inner), ConvSiLU(2 * inner, outputs)
        self.m1, self.m2 = ConvSiLU(inner, inner), ConvSiLU(inner, inner, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.cv1(x)
        y = y + self.m2(self.m1(y))
        return self.cv3(torch.cat([y, self.cv2(x)], 1))


class Detector(nn.Module):
    """A detector in the manner of YOLOv5: pyramid, two scales, boxes decoded by expressions."""

    ANCHORS = (((10.0, 13.0), (16.0, 30.0)), ((30.0, 61.0), (62.0, 45.0)))
    STRIDES = (8, 16)

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.values = classes + 5
        self.stem = nn.Sequential(ConvSiLU(3, 8, 6, 2), ConvSiLU(8, 16, 3, 2), C3(16, 16), ConvSiLU(16, 24, 3, 2))
        self.c3, self.down, self.c4 = C3(24, 24), ConvSiLU(24, 32, 3, 2), C3(32, 32)
        self.pool1, self.pool2 = ConvSiLU(32, 16), ConvSiLU(64, 32)
        self.lateral, self.join = ConvSiLU(32, 24), C3(48, 24)
        self.heads = nn.ModuleList([nn.Conv2d(24, 2 * self.values, 1), nn.Conv2d(32, 2 * self.values, 1)])

    def spatial_pyramid(self, x: Tensor) -> Tensor:
        x = self.pool1(x)
        y = F.max_pool2d(x, 5, 1, 2)
        z = F.max_pool2d(y, 5, 1, 2)
        return self.pool2(torch.cat([x, y, z, F.max_pool2d(z, 5, 1, 2)], 1))

    def decoded(self, x: Tensor, level: int) -> Tensor:
        n, _, h, w = x.shape
        x = x.view(n, 2, self.values, h, w).permute(0, 1, 3, 4, 2).contiguous()
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((xs, ys), 2).float().view(1, 1, h, w, 2) - 0.5
        anchors = torch.tensor(self.ANCHORS[level]).view(1, 2, 1, 1, 2)
        xy, wh, tail = x.sigmoid().split((2, 2, self.values - 4), 4)
        xy = (xy * 2 + grid) * self.STRIDES[level]
        wh = (wh * 2) ** 2 * anchors
        return torch.cat((xy, wh, tail), 4).view(n, -1, self.values)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.c3(self.stem(x))
        coarse = self.spatial_pyramid(self.c4(self.down(fine)))
        fine = self.join(torch.cat([F.interpolate(self.lateral(coarse), scale_factor=2.0), fine], 1))
        heads = zip(self.heads, (fine, coarse), strict=True)
        return torch.cat([self.decoded(head(y), level) for level, (head, y) in enumerate(heads)], 1)


class Attention(nn.Module):
    """Self-attention with several heads, written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(x).reshape(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        shares = ((q @ k.transpose(-2, -1)) * (1 / math.sqrt(width // self.heads))).softmax(-1)
        return self.out((shares @ v).transpose(1, 2).reshape(n, length, width))


class EncoderBlock(nn.Module):
    """Attention and two linear layers, each after a normalization; `fused` takes PyTorch's own attention."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fused = fused
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True) if fused else Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + (self.attention(y, y, y, need_weights=False)[0] if self.fused else self.attention(y))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """A vision transformer (Dosovitskiy et al., 2020) of three blocks."""

    def __init__(self, width: int = 32, patches: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.1)
        self.position = nn.Parameter(torch.randn(1, patches + 1, width) * 0.1)
        self.blocks = nn.Sequential(*[EncoderBlock(width, 4, fused) for fused in (False, True, False)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


class Tagger(nn.Module):
    """A tagger of words: embedding, a bidirectional LSTM of two layers, scores for each word."""

    def __init__(self, words: int = 50, tags: int = 7) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 16)
        self.lstm = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(24, tags)

    def forward(self, words: Tensor) -> Tensor:
        return F.log_softmax(self.out(self.lstm(self.embedding(words))[0]), -1)


NETWORKS = {
    "resnet18": (ResNet18, lambda: (torch.randn(1, 3, 64, 64),)),
    "mobilenet_v2": (MobileNetV2, lambda: (torch.randn(1, 3, 64, 64),)),
    "unet": (UNet, lambda: (torch.randn(1, 1, 45, 38),)),
    "detector": (Detector, lambda: (torch.randn(1, 3, 64, 96),)),
    "vit": (VisionTransformer, lambda: (torch.randn(2, 3, 32, 32),)),
    "tagger": (Tagger, lambda: (torch.randint(0, 50, (2, 9)),)),
}
