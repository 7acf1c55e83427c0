"""The text of a language model as a document of NNEF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Layer", "Sizes", "Style", "document"]

_DOCUMENT = """\
version 1.0;
extension tract_registry tract_core;
extension tract_registry tract_transformers;
extension tract_registry nnefc;
{rows_symbol}extension tract_symbol S;  # tokens of this run
extension tract_assert S >= 1;
extension tract_assert S <= {context};

{norm}
fragment heads(x: tensor<scalar>, count: integer) -> (y: tensor<scalar>) {{
    y = transpose(reshape(x, shape = [{rows}, S, count, {width}]), axes = [0, 2, 1, 3]);
}}

{head_norm}fragment rotated(x: tensor<scalar>, cosine: tensor<scalar>, sine: tensor<scalar>) -> (y: tensor<scalar>) {{
    y = tract_transformers_apply_rope(x, cosine, sine);
}}

fragment attention(
    x: tensor<scalar>, before: tensor<integer>, cosine: tensor<scalar>, sine: tensor<scalar>, window: integer,
    {attention_parameters}
) -> (y: tensor<scalar>) {{
    queries = rotated({query}, cosine, sine);
    keys = rotated({key}, cosine, sine);
    found = nnefc_cached_attention(queries, keys, {value},
        before, window = window{attention_options});
    y = {attended};
}}

fragment feed_forward(
    x: tensor<scalar>, {feed_parameters}
) -> (y: tensor<scalar>) {{
    y = {fed};
}}
{chosen}
graph {name}(tokens{more_inputs}) -> ({result}) {{
    tokens = tract_core_external(shape = [{rows}, S], datum_type = 'i64');
{externals}    (before, lengths) = nnefc_positions(tokens, {sequences}context = {context});
    positions = unsqueeze(before, axes = [1]) + unsqueeze(tract_core_range(0, S, step = 1), axes = [0]);
    angles_at = tract_core_cast(unsqueeze(positions, axes = [1, 3]), to = 'f32');
{turns}
    embeddings = variable<scalar>(label = 'token_embd.weight', shape = [{words}, {size}]);
    x0 = tract_core_gather(embeddings, reshape({known}, shape = [{flat}]), axis = 0){scaled};
{layers}
    last = {last};
    logits = {logits};
{choice}}}
"""

_TURN = """\
    {prefix}angles = angles_at * variable<scalar>(label = '{prefix}frequencies', shape = [1, 1, 1, {width}]);
    {prefix}cosine = cos({prefix}angles);
    {prefix}sine = sin({prefix}angles);
"""

_ROOT_NORM = """\
fragment norm(x: tensor<scalar>, weight: tensor<scalar>) -> (y: tensor<scalar>) {{
    y = tract_core_rms_norm(x, axis = 1, eps = {epsilon}) * weight;
}}
"""

_HEAD_NORM = """\
fragment head_norm(x: tensor<scalar>, weight: tensor<scalar>) -> (y: tensor<scalar>) {{
    y = tract_core_rms_norm(x, axis = 3, eps = {epsilon}) * unsqueeze(weight, axes = [0, 1]);
}}

"""

_LAYER_NORM = """\
fragment norm(x: tensor<scalar>, weight: tensor<scalar>, bias: tensor<scalar>) -> (y: tensor<scalar>) {{
    (mean, variance) = moments(x, axes = [1]);
    y = (x - mean) * rsqrt(variance + {epsilon}) * weight + bias;
}}
"""

_CHOSEN = """
fragment chosen(
    logits: tensor<scalar>, temperature: tensor<scalar>, top_k: tensor<integer>, top_p: tensor<scalar>,
    chance: tensor<scalar>
) -> (token: tensor<integer>) {{
    (best, words) = tract_core_topk(logits, k = {maximum}, axis = 1);
    powers = exp((best - max_reduce(best, axes = [1])) / max(unsqueeze(temperature, axes = [1]), 1e-6));
    ranks = unsqueeze(tract_core_range(0, {maximum}, step = 1), axes = [0]);
    listed = select(ranks < unsqueeze(top_k, axes = [1]), powers, 0.0);
    before = tract_core_cumsum(listed, axis = 1, exclusive = true);
    kept = select(before < unsqueeze(top_p, axes = [1]) * sum_reduce(listed, axes = [1]), listed, 0.0);
    behind = tract_core_cumsum(kept, axis = 1) <= unsqueeze(chance, axes = [1]) * sum_reduce(kept, axes = [1]);
    choice_index = min(sum_reduce(select(behind, 1, 0), axes = [1]), sum_reduce(select(kept > 0.0, 1, 0), axes = [1]) -
    1); drawn = select(unsqueeze(temperature, axes = [1]) > 0.0, max(choice_index, 0), 0);
    token = squeeze(tract_core_gather_elements(words, drawn, axis = 1), axes = [1]);
}}
"""

_CHOICE = {"temperature": "f32", "top_k": "i64", "top_p": "f32", "chance": "f32"}
"""The settings of a network that chooses tokens, one of each for a sequence."""

_LAYER = """\
    a{n} = x{n} + {attention};
    x{next} = a{n} + {feed};
"""

_PARALLEL_LAYER = """\
    n{n} = {norm};
    x{next} = x{n} + {attention} + {feed};
"""


@dataclass(frozen=True)
class Sizes:
    """Numbers of a model: heads of queries, of keys; elements of a head, of an embedding; words; the maximum tokens."""

    heads: int
    key_heads: int
    width: int
    size: int
    words: int
    context: int


@dataclass(frozen=True)
class Style:
    """What makes one architecture's document different from another's.

    Attributes:
        name: of the architecture.
        epsilon: of the norms.
        centered: whether norms take away the mean, and have biases.
        activation: of the feed-forward layer.
        gated: whether that has a gate.
        parallel: whether attention and feed-forward layer have one operand.
        scale: of the embeddings.
        attention_scale, attention_cap: of the scores; 0 for one over the root of the width, and for none.
        cap: of the logits; 0 for none.
        local: whether layers with a window turn heads by other angles.
    """

    name: str
    epsilon: str
    centered: bool
    activation: str
    gated: bool
    parallel: bool
    scale: float
    attention_scale: float
    attention_cap: float
    cap: float
    local: bool


@dataclass(frozen=True)
class Layer:
    """The parameters of a layer as text, by the names that fragments call them; and its window, 0 for none."""

    norms: dict[str, str]
    attention: dict[str, str]
    feed: dict[str, str]
    window: int


def document(
    style: Style,
    sizes: Sizes,
    layers: Sequence[Layer],
    last_norm: str,
    output: Sequence[str],
    sequences: int,
    sample: int,
) -> str:
    """A model as NNEF's text.

    Args:
        style, sizes, layers: of the model.
        last_norm: the parameters of the norm before the logits.
        output: what makes logits of it: a matrix, perhaps a bias.
        sequences: how many a session remembers side by side.
        sample: of how many of the likeliest tokens one is chosen; 0 if logits are the result.
    """
    several = sequences > 1
    rows, flat = ("B", "B * S") if several else ("1", "S")
    own = layers[0]
    inner = sizes.heads * sizes.width
    options = {"scale": style.attention_scale, "softcap": style.attention_cap}
    choice = list(_CHOICE) if sample > 1 else []
    tokens = "max(tokens, 0)" if several else "tokens"
    logits = _product(f"norm(last, {last_norm})", *output)
    return _DOCUMENT.format(
        **vars(sizes),
        name=style.name,
        epsilon=style.epsilon,
        rows=rows,
        flat=flat,
        rows_symbol=_ROWS.format(sequences=sequences) if several else "",
        norm=(_LAYER_NORM if style.centered else _ROOT_NORM).format(epsilon=style.epsilon),
        head_norm=_HEAD_NORM.format(epsilon=style.epsilon) if "q_norm" in own.attention else "",
        attention_parameters=_parameters(own.attention),
        query=_heads("q", sizes.heads, own),
        key=_heads("k", sizes.key_heads, own),
        value=_heads("v", sizes.key_heads, own),
        attention_options="".join(f", {name} = {_number(value)}" for name, value in options.items() if value),
        attended=_of(f"reshape(transpose(found, axes = [0, 2, 1, 3]), shape = [{flat}, {inner}])", "o", own.attention),
        feed_parameters=_parameters(own.feed),
        fed=_fed(style, own.feed),
        chosen=_CHOSEN.format(maximum=sample) if choice else "",
        more_inputs="".join(f", {name}" for name in [*["sequences"] * several, *choice]),
        result="token" if sample else "logits",
        externals=_externals(rows, several, choice),
        sequences=f"sequences, count = {sequences}, " if several else "",
        turns="".join(
            _TURN.format(prefix=prefix, width=sizes.width) for prefix in ["", *["local_"] * style.local]
        ).rstrip("\n"),
        known=tokens,
        scaled=f" * {_number(style.scale)}" if style.scale != 1 else "",
        layers="".join(_layer(style, n, layer) for n, layer in enumerate(layers)).rstrip("\n"),
        last=_LAST_OF_EACH.format(count=len(layers)) if several else _LAST.format(count=len(layers)),
        logits=f"tanh({logits} / {_number(style.cap)}) * {_number(style.cap)}" if style.cap else logits,
        choice=_choice(sample, choice),
    )


_ROWS = """\
extension tract_symbol B;  # sequences of this run
extension tract_assert B >= 1;
extension tract_assert B <= {sequences};
"""
_LAST = "slice(x{count}, axes = [0], begin = [-1], end = [0])"
_LAST_OF_EACH = "tract_core_gather(x{count}, tract_core_range(0, B, step = 1) * S + max(lengths, 1) - 1, axis = 0)"


def _number(value: float) -> str:
    """As NNEF writes a real."""
    return repr(float(value))


def _parameters(given: dict[str, str]) -> str:
    return ", ".join(f"{name}: tensor<scalar>" for name in given)


def _product(x: str, matrix: str, bias: str | None = None) -> str:
    return f"matmul({x}, {matrix}, transposeB = true)" + (f" + {bias}" if bias else "")


def _of(x: str, name: str, given: dict[str, str]) -> str:
    """A product with one of a fragment's matrices, and its bias if it has one."""
    return _product(x, name, f"{name}_bias" if f"{name}_bias" in given else None)


def _heads(part: str, count: int, layer: Layer) -> str:
    """Queries, keys or values, before they are rotated."""
    heads = f"heads({_of('x', part, layer.attention)}, {count})"
    return f"head_norm({heads}, {part}_norm)" if f"{part}_norm" in layer.attention else heads


def _fed(style: Style, given: dict[str, str]) -> str:
    made = f"{style.activation}({_of('x', 'gate' if style.gated else 'up', given)})"
    return _of(f"{made} * {_wrapped(_of('x', 'up', given))}" if style.gated else made, "down", given)


def _wrapped(text: str) -> str:
    return f"({text})" if " + " in text else text


def _externals(rows: str, several: bool, choice: Sequence[str]) -> str:
    given = [("sequences", "i64")] * several + [(name, _CHOICE[name]) for name in choice]
    return "".join(
        f"    {name} = tract_core_external(shape = [{rows}], datum_type = '{kind}');\n" for name, kind in given
    )


def _choice(sample: int, choice: Sequence[str]) -> str:
    if not sample:
        return ""
    likeliest = "tract_core_cast(squeeze(argmax_reduce(logits, axes = [1]), axes = [1]), to = 'i64')"
    call = f"chosen(logits, {', '.join(choice)})" if choice else likeliest
    return f"    token = {call};\n"


def _layer(style: Style, n: int, layer: Layer) -> str:
    prefix = "local_" if style.local and layer.window else ""
    x, between = ("n{n}", "n{n}") if style.parallel else ("norm(x{n}, {attn_norm})", "norm(a{n}, {ffn_norm})")
    x, between = (text.format(n=n, **layer.norms) for text in (x, between))
    angles = f"{prefix}cosine, {prefix}sine, {layer.window}"
    attention = f"attention({x}, before, {angles},{_listed(layer.attention)})"
    feed = f"feed_forward({between},{_listed(layer.feed)})"
    if "post_attention_norm" in layer.norms:
        attention = f"norm({attention}, {layer.norms['post_attention_norm']})"
        feed = f"norm({feed}, {layer.norms['post_ffw_norm']})"
    form = _PARALLEL_LAYER if style.parallel else _LAYER
    norm = f"norm(x{n}, {layer.norms['attn_norm']})"
    return form.format(n=n, next=n + 1, norm=norm, attention=attention, feed=feed)


def _listed(given: dict[str, str]) -> str:
    return ",".join(f"\n        {text}" for text in given.values())
