"""Networks of PyTorch that `export.py` exports, with random weights and the sizes that they are run at.

Needs torch, torchvision, timm and transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["NETWORKS", "Recipe"]

Inputs = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True)
class Recipe:
    """How a network is made, exported and run.

    Attributes:
        make: the module.
        inputs: the module's inputs, of the sizes that are given by name.
        sizes: by name, those of each run; the first is traced.
        axes: the symbols of axes of inputs, by the inputs' numbers; others have the traced size.
        kind: of the weights: "f32", "f16", "int8" or "Q4_0".
    """

    make: Callable[[], nn.Module]
    inputs: Inputs
    sizes: Sequence[Mapping[str, int]] = ({},)
    axes: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    kind: str = "f32"


class _Function(nn.Module):
    """A function of modules and inputs, as a module."""

    def __init__(self, function: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self._function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs: Tensor) -> Any:
        return self._function(self, *inputs)


def _image(size: int) -> Inputs:
    return lambda n=1, h=size, w=size: [torch.randn(n, 3, h, w)]


def _torchvision(name: str, size: int = 64, **recipe: Any) -> Recipe:
    def make() -> nn.Module:
        import torchvision

        return getattr(torchvision.models, name)(weights=None)

    return Recipe(make, _image(size), **recipe)


def _timm(architecture: str, size: int = 64, **recipe: Any) -> Recipe:
    def make() -> nn.Module:
        import timm

        network = timm.create_model(architecture, pretrained=False)
        for name, weight in network.named_parameters():
            if name.endswith("weight") and not weight.any():  # as some branches begin, which training changes
                nn.init.uniform_(weight, 0.5, 1.5)
        return network

    return Recipe(make, _image(size), **recipe)


_BATCHES = {"sizes": ({"n": 2}, {"n": 1}, {"n": 3}), "axes": {0: {0: "N"}}}
_WORDS = {"sizes": ({"s": 48}, {"s": 1}, {"s": 17}), "axes": {0: {1: "S"}}}
_SMALL = {
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 704,
    "vocab_size": 1000,
}
_GROUPED = {**_SMALL, "num_key_value_heads": 2}


def _transformers(name: str, config: str, inputs: Inputs, *, call: Callable[..., Any], **more: Any) -> Recipe:
    recipe = {key: more.pop(key) for key in ("sizes", "axes", "kind") if key in more}

    def make() -> nn.Module:
        import transformers

        model = getattr(transformers, name)(getattr(transformers, config)(**more)).eval()
        return _Function(call, m=model.half() if recipe.get("kind") == "f16" else model)

    return Recipe(make, inputs, **recipe)


def _ids(s: int = 48) -> list[Tensor]:
    return [torch.randint(0, 90, (1, s))]


def _hidden(self: Any, x: Tensor) -> Tensor:
    return self.m(x).last_hidden_state


def _typed(self: Any, x: Tensor) -> Tensor:
    return self.m(x, token_type_ids=torch.zeros_like(x)).last_hidden_state


def _logits(self: Any, x: Tensor) -> Tensor:
    positions = torch.arange(x.shape[1])[None]
    return self.m(x, attention_mask=torch.ones_like(x), position_ids=positions, use_cache=False).logits.float()


def _encoder(name: str, config: str, call: Callable[..., Any] = _hidden, **more: Any) -> Recipe:
    """A model of texts, whose length is open."""
    return _transformers(name, config, _ids, call=call, **{**_WORDS, **more})


def _decoder(name: str, **more: Any) -> Recipe:
    """A language model, whose length is open; attention is products and a softmax, unless an implementation is given.

    tract does not run PyTorch's own attention where its mask is of booleans, nor heads in groups without it.
    """
    given = {**_WORDS, "attn_implementation": "eager", **more}
    return _transformers(f"{name}ForCausalLM", f"{name}Config", _ids, call=_logits, **given)


_SPEECH = {
    **_SMALL,
    "conv_dim": (128,) * 7,
    "num_conv_pos_embeddings": 32,
    "num_conv_pos_embedding_groups": 8,
}
del _SPEECH["vocab_size"]


def _wave(t: int = 16000) -> list[Tensor]:
    return [torch.randn(1, t)]


def _whisper() -> nn.Module:
    from transformers import WhisperConfig, WhisperModel

    sizes = {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
    other = {"decoder_layers": 1, "decoder_attention_heads": 6, "vocab_size": 100, "max_source_positions": 500}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return _Function(_hidden, m=WhisperModel(WhisperConfig(**sizes, **other, **tokens)).encoder)


class _Conformer(nn.Module):
    """A block of a conformer between its two halves of feed-forward layers."""

    def __init__(self, width: int = 144, heads: int = 4, taps: int = 31) -> None:
        super().__init__()
        self.before, self.after = (
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            for _ in range(2)
        )
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.convolution = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1),
            nn.GLU(1),
            nn.Conv1d(width, width, taps, padding=taps // 2, groups=width),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.before(x) / 2
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.convolution(x.transpose(1, 2)).transpose(1, 2)
        return self.last(x + self.after(x) / 2)


def _sequences(width: int, batch: int = 1) -> Inputs:
    return lambda t=50: [torch.randn(batch, t, width)]


_STEPS = {"sizes": ({"t": 50}, {"t": 7}, {"t": 120}), "axes": {0: {1: "T"}}}


def _recurrent(kind: type[nn.RNNBase], **options: Any) -> Recipe:
    def make() -> nn.Module:
        return _Function(lambda self, x: self.m(x)[0], m=kind(80, 256, batch_first=True, **options))

    return Recipe(make, _sequences(80), **_STEPS)


def _function(function: Callable[..., Any], *shapes: tuple[int, ...], **modules: Callable[[], nn.Module]) -> Recipe:
    def make() -> nn.Module:
        made = {name: module() for name, module in modules.items()}
        return _Function(
            lambda self, *inputs: function(*inputs, **{name: getattr(self, name) for name in made}), **made
        )

    return Recipe(make, lambda: [torch.randn(*shape) for shape in shapes])


def _unet_gru() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        one = F.relu(self.down(x))
        two = F.relu(self.deep(one))
        return self.up(F.relu(self.wide(self.gru(two.transpose(1, 2))[0].transpose(1, 2))) + one)

    return _Function(
        forward,
        down=nn.Conv1d(16, 64, 4, 2, 1),
        deep=nn.Conv1d(64, 128, 4, 2, 1),
        gru=nn.GRU(128, 128, batch_first=True),
        wide=nn.ConvTranspose1d(128, 64, 4, 2, 1),
        up=nn.ConvTranspose1d(64, 16, 4, 2, 1),
    )


def _tcn() -> nn.Module:
    layers: list[nn.Module] = []
    for level in range(5):
        layers += [nn.Conv1d(16 if level == 0 else 64, 64, 3, dilation=2**level, padding=2**level), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv1d(64, 16, 1))


def _stft(x: Tensor) -> Tensor:
    window = torch.hann_window(400, periodic=True)
    return torch.view_as_real(torch.stft(x, 400, 160, window=window, center=False, return_complex=True))


class _Quantized(nn.Module):
    """Convolutions and a linear layer in integers of 8 bits, between floats."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 16 * 16, 10),
        )
        self.enter, self.leave = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.body(self.enter(x)))


def _quantized() -> nn.Module:
    module = _Quantized().eval()
    torch.backends.quantized.engine = "fbgemm"
    module.qconfig = torch.ao.quantization.default_qconfig
    torch.ao.quantization.prepare(module, inplace=True)
    for _ in range(4):
        module(torch.randn(1, 3, 64, 64))
    torch.ao.quantization.convert(module, inplace=True)
    return module


def _half(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """A module in half precision, between floats."""
    return lambda: _Function(lambda self, x: self.m(x.half()).float(), m=make().half())


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))


NETWORKS: dict[str, Recipe] = {
    "tv_resnet18": _torchvision("resnet18", **_BATCHES),
    "tv_resnet50": _torchvision("resnet50"),
    "tv_densenet121": _torchvision("densenet121"),
    "tv_mobilenet_v2": _torchvision("mobilenet_v2", **_BATCHES),
    "tv_mobilenet_v3_small": _torchvision("mobilenet_v3_small"),
    "tv_mnasnet0_5": _torchvision("mnasnet0_5"),
    "tv_efficientnet_b0": _torchvision("efficientnet_b0"),
    "tv_regnet_y_400mf": _torchvision("regnet_y_400mf"),
    "tv_shufflenet_v2_x0_5": _torchvision("shufflenet_v2_x0_5"),
    "tv_convnext_tiny": _torchvision("convnext_tiny"),
    "timm_cait_xxs24_224": _timm("cait_xxs24_224", 224),
    "timm_coatnet_pico_rw_224": _timm("coatnet_pico_rw_224", 224),
    "timm_convmixer_768_32": _timm("convmixer_768_32"),
    "timm_deit_tiny_patch16_224": _timm("deit_tiny_patch16_224", 224),
    "timm_dla34": _timm("dla34"),
    "timm_fastvit_t8": _timm("fastvit_t8"),
    "timm_ghostnet_100": _timm("ghostnet_100"),
    "timm_hrnet_w18_small": _timm("hrnet_w18_small"),
    "timm_levit_128s": _timm("levit_128s", 224),
    "timm_maxvit_rmlp_pico_rw_256": _timm("maxvit_rmlp_pico_rw_256", 256),
    "timm_mixer_s32_224": _timm("mixer_s32_224", 224),
    "timm_mobilevit_xxs": _timm("mobilevit_xxs"),
    "timm_pvt_v2_b0": _timm("pvt_v2_b0"),
    "timm_repvgg_a0": _timm("repvgg_a0"),
    "timm_res2net50_26w_4s": _timm("res2net50_26w_4s"),
    "timm_skresnet18": _timm("skresnet18"),
    "timm_swin_tiny_patch4_window7_224": _timm("swin_tiny_patch4_window7_224", 224),
    "timm_vit_tiny_patch16_224": _timm("vit_tiny_patch16_224", 224),
    "timm_xception41": _timm("xception41", 128),
    "hf_bert": _encoder("BertModel", "BertConfig", _typed, **_SMALL),
    "hf_distilbert": _encoder(
        "DistilBertModel", "DistilBertConfig", dim=256, n_layers=3, n_heads=4, hidden_dim=704, vocab_size=1000
    ),
    "hf_roberta": _encoder("RobertaModel", "RobertaConfig", _typed, **_SMALL),
    "hf_clip_text": _encoder("CLIPTextModel", "CLIPTextConfig", **_SMALL),
    "hf_t5_encoder": _encoder(
        "T5EncoderModel", "T5Config", d_model=256, num_layers=3, num_heads=4, d_ff=704, vocab_size=1000, d_kv=64
    ),
    "hf_llama": _decoder("Llama", **_SMALL),
    "hf_qwen2": _decoder("Qwen2", **_GROUPED, attn_implementation="sdpa"),
    "hf_qwen3": _decoder("Qwen3", **_GROUPED, head_dim=64),
    "hf_mistral": _decoder("Mistral", **_GROUPED, attn_implementation="sdpa"),
    "hf_gemma": _decoder("Gemma", **_GROUPED, head_dim=64),
    "hf_gemma2": _decoder("Gemma2", **_GROUPED, head_dim=64),
    "hf_phi": _decoder("Phi", **_SMALL),
    "hf_phi3": _decoder("Phi3", **_GROUPED, pad_token_id=0, bos_token_id=1, eos_token_id=2),
    "hf_opt": _decoder(
        "OPT",
        hidden_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        ffn_dim=704,
        vocab_size=1000,
        word_embed_proj_dim=256,
    ),
    "hf_gptneox": _decoder("GPTNeoX", **_SMALL),
    "hf_stablelm": _decoder("StableLm", **_SMALL, num_key_value_heads=4),
    "hf_olmo2": _decoder("Olmo2", **_GROUPED),
    "hf_granite": _decoder("Granite", **_SMALL),
    "hf_mixtral": _decoder("Mixtral", **_GROUPED, num_local_experts=4),
    "hf_llama_f16": _decoder("Llama", **_SMALL, kind="f16"),
    "hf_llama_q40": _decoder("Llama", **_SMALL, kind="Q4_0"),
    "hf_qwen3_q40": _decoder("Qwen3", **_GROUPED, head_dim=64, kind="Q4_0"),
    "hf_whisper_encoder": Recipe(_whisper, lambda: [torch.randn(1, 80, 1000)]),
    "hf_wav2vec2": _transformers("Wav2Vec2Model", "Wav2Vec2Config", _wave, call=_hidden, **_SPEECH),
    "hf_hubert": _transformers("HubertModel", "HubertConfig", _wave, call=_hidden, **_SPEECH),
    "hf_segformer": _transformers("SegformerModel", "SegformerConfig", _image(128), call=_hidden),
    "hf_convnext": _transformers("ConvNextModel", "ConvNextConfig", _image(64), call=_hidden),
    "conformer": Recipe(_Conformer, _sequences(144), **_STEPS),
    "transformer_layer": Recipe(
        lambda: nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), _sequences(256), **_STEPS
    ),
    "lstm": _recurrent(nn.LSTM, num_layers=2),
    "bilstm": _recurrent(nn.LSTM, bidirectional=True),
    "gru": _recurrent(nn.GRU, num_layers=2),
    "rnn": _recurrent(nn.RNN),
    "tcn": Recipe(
        _tcn,
        lambda t=200: [torch.randn(1, 16, t)],
        sizes=({"t": 200}, {"t": 33}, {"t": 500}),
        axes={0: {2: "T"}},
    ),
    "unet_gru": Recipe(_unet_gru, lambda: [torch.randn(1, 16, 256)]),
    "stft": _function(_stft, (1, 16000)),
    "fft": _function(lambda x: torch.view_as_real(torch.fft.fft(torch.complex(x, x))), (16, 512)),
    "einsum": _function(lambda a, b: torch.einsum("bhij,bhkj->bhik", a, b), (2, 4, 64, 32), (2, 4, 80, 32)),
    "scatter": _function(
        lambda x: torch.zeros(64, 256).scatter(1, torch.arange(64 * 32).reshape(64, 32) * 7 % 256, x), (64, 32)
    ),
    "topk": _function(lambda x: torch.topk(x, 8)[0], (64, 1000)),
    "cumsum": _function(lambda x: torch.cumsum(x, 1), (16, 200)),
    "grid_sample": _function(
        lambda x, grid: F.grid_sample(x, torch.tanh(grid), align_corners=False), (1, 16, 64, 64), (1, 48, 48, 2)
    ),
    "interpolate": _function(
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear") + F.interpolate(x, scale_factor=2.0),
        (1, 16, 32, 32),
    ),
    "deconv": _function(
        lambda x, up: up(x),
        (1, 32, 24, 24),
        up=lambda: nn.ConvTranspose2d(32, 48, 3, 2, 1, output_padding=1, groups=2),
    ),
    "pools": _function(
        lambda x: F.max_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1) + F.adaptive_avg_pool2d(x, (28, 28)),
        (1, 32, 56, 56),
    ),
    "resnet18_f16": Recipe(_half(lambda: NETWORKS["tv_resnet18"].make()), _image(64), kind="f16"),
    "mlp_f16": Recipe(_half(_mlp), lambda: [torch.randn(8, 512)], kind="f16"),
    "mlp_q40": Recipe(_mlp, lambda: [torch.randn(8, 512)], kind="Q4_0"),
    "convolutions_int8": Recipe(_quantized, _image(64), kind="int8"),
}
