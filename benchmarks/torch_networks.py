"""Modules of PyTorch with random weights, and an example of their inputs, for `torch_modules.py`.

`NETWORKS` says of each what makes it: torchvision's, timm's and transformers' classes without pretrained weights, and a
diffusion transformer that is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

__all__ = ["NETWORKS", "Made"]

Made = tuple[nn.Module, tuple[Any, ...]]
"""A module in the mode for inference, and the positional arguments of a call."""


def _image(size: int, batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, 3, size, size)


def _torchvision(name: str, size: int = 224) -> Callable[[], Made]:
    def make() -> Made:
        import torchvision

        return torchvision.models.get_model(name, weights=None), (_image(size),)

    return make


def _segmentation() -> Made:
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    return _First(lraspp_mobilenet_v3_large(weights=None, weights_backbone=None), "out"), (_image(256),)


def _timm(name: str, size: int = 224) -> Callable[[], Made]:
    def make() -> Made:
        import timm

        return timm.create_model(name, pretrained=False), (_image(size),)

    return make


class _First(nn.Module):
    """Returns one of the results of a module that returns several by name."""

    def __init__(self, module: nn.Module, name: str, argument: str | None = None) -> None:
        super().__init__()
        self.module, self.name, self.argument = module, name, argument

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        given = (value,) if self.argument is None else ()
        found = self.module(*given, **({} if self.argument is None else {self.argument: value}))
        return found[self.name] if isinstance(found, dict) else getattr(found, self.name)


def _text(model: str, result: str, **sizes: Any) -> Callable[[], Made]:
    """Returns what makes a transformer of tokens, by the names of its class and of its result."""

    def make() -> Made:
        import transformers

        family = model.removesuffix("Model").removesuffix("Encoder")
        config = getattr(transformers, f"{family}Config")(**sizes)
        tokens = torch.randint(0, config.vocab_size, (1, 64))
        return _First(getattr(transformers, model)(config), result, "input_ids"), (tokens,)

    return make


def _whisper() -> Made:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
    return _First(WhisperEncoder(config), "last_hidden_state"), (torch.randn(1, config.num_mel_bins, 3000),)


def _clip() -> Made:
    from transformers import CLIPVisionConfig, CLIPVisionModel

    return _First(CLIPVisionModel(CLIPVisionConfig()), "pooler_output", "pixel_values"), (_image(224),)


def _dinov2() -> Made:
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(hidden_size=384, num_attention_heads=6, image_size=224)
    return _First(Dinov2Model(config), "last_hidden_state", "pixel_values"), (_image(224),)


def _segformer() -> Made:
    from transformers import SegformerConfig, SegformerModel

    return _First(SegformerModel(SegformerConfig()), "last_hidden_state", "pixel_values"), (_image(256),)


def _wav2vec2() -> Made:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(num_hidden_layers=6)
    return _First(Wav2Vec2Model(config), "last_hidden_state", "input_values"), (torch.randn(1, 16_000),)


def _vits() -> Made:
    """Returns the decoder of VITS, from latents to samples: the other parts are small, and one draws random numbers."""
    from transformers import VitsConfig, VitsModel

    config = VitsConfig()
    return VitsModel(config).decoder, (torch.randn(1, config.flow_size, 100),)


def _mimi(part: str) -> Callable[[], Made]:
    def make() -> Made:
        from transformers import MimiConfig, MimiModel

        model = MimiModel(MimiConfig())
        given = torch.randn(1, 1, 24_000) if part == "encoder" else torch.randn(1, 512, 50)
        return getattr(model, part), (given,)

    return make


class _DiffusionBlock(nn.Module):
    """A block of a diffusion transformer: attention and two layers, scaled and shifted by a condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(condition)[:, None].chunk(6, -1)
        batch, length, width = x.shape
        normal = self.norm(x) * (1 + scale) + shift
        q, k, v = self.qkv(normal).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + gate * self.out(mixed)
        return x + gate2 * self.mlp(self.norm(x) * (1 + scale2) + shift2)


class _DiffusionTransformer(nn.Module):
    """Latents of an image, a time and a class to the noise in the latents: patches, blocks, and patches again."""

    def __init__(self, width: int = 384, depth: int = 12, heads: int = 6, side: int = 32, patch: int = 2) -> None:
        super().__init__()
        self.patch, self.side = patch, side // patch
        self.patches = nn.Conv2d(4, width, patch, patch)
        self.positions = nn.Parameter(torch.randn(1, self.side**2, width) * 0.02)
        self.classes = nn.Embedding(1000, width)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(_DiffusionBlock(width, heads) for _ in range(depth))
        self.last = nn.Linear(width, patch * patch * 8)
        frequencies = torch.exp(-torch.arange(128) * (9.21 / 128))
        self.register_buffer("frequencies", frequencies)

    def forward(self, latents: torch.Tensor, time: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        angles = time[:, None].float() * self.frequencies
        condition = self.time(torch.cat([angles.cos(), angles.sin()], -1)) + self.classes(label)
        x = self.patches(latents).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x, condition)
        x = self.last(x).reshape(-1, self.side, self.side, self.patch, self.patch, 8)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(-1, 8, self.side * self.patch, self.side * self.patch)


def _dit() -> Made:
    return _DiffusionTransformer(), (torch.randn(1, 4, 32, 32), torch.tensor([500]), torch.tensor([7]))


NETWORKS: Mapping[str, Callable[[], Made]] = {
    "resnet18": _torchvision("resnet18"),
    "resnet50": _torchvision("resnet50"),
    "mobilenet_v2": _torchvision("mobilenet_v2"),
    "mobilenet_v3_small": _torchvision("mobilenet_v3_small"),
    "efficientnet_b0": _torchvision("efficientnet_b0"),
    "densenet121": _torchvision("densenet121"),
    "shufflenet_v2_x1_0": _torchvision("shufflenet_v2_x1_0"),
    "squeezenet1_1": _torchvision("squeezenet1_1"),
    "regnet_y_400mf": _torchvision("regnet_y_400mf"),
    "convnext_tiny": _torchvision("convnext_tiny"),
    "vit_b_16": _torchvision("vit_b_16"),
    "swin_t": _torchvision("swin_t"),
    "lraspp_mobilenet_v3": _segmentation,
    "mobilevit_s": _timm("mobilevit_s", 256),
    "levit_128": _timm("levit_128"),
    "ghostnet_100": _timm("ghostnet_100"),
    "edgenext_small": _timm("edgenext_small", 256),
    "resmlp_12": _timm("resmlp_12_224"),
    "deit_tiny": _timm("deit_tiny_patch16_224"),
    "bert_base": _text("BertModel", "last_hidden_state"),
    "distilbert": _text("DistilBertModel", "last_hidden_state"),
    "gpt2": _text("GPT2Model", "last_hidden_state", use_cache=False),
    "t5_encoder": _text("T5EncoderModel", "last_hidden_state"),
    "whisper_tiny_encoder": _whisper,
    "clip_vision": _clip,
    "dinov2_small": _dinov2,
    "segformer_b0": _segformer,
    "wav2vec2": _wav2vec2,
    "vits_decoder": _vits,
    "mimi_encoder": _mimi("encoder"),
    "mimi_decoder": _mimi("decoder"),
    "dit_s_2": _dit,
}
