"""The pre-tokenizers of GGUF files, by name (`tokenizer.ggml.pre`): how each splits text into words.

The regular expressions are those of the models' own tokenizers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nnefc.tokenizer.steps import GPT2_PATTERN, split, split_characters
from nnefc.tokenizer.vocabulary import Behavior, Step

__all__ = ["PRE_TOKENIZERS", "PreTokenizer"]


@dataclass(frozen=True)
class PreTokenizer:
    """A named pre-tokenizer.

    Attributes:
        steps: that split a text.
        whole_words: whether a word that is a token is not split further.
        begins: whether BOS precedes a text, unless the file says otherwise.
        separates: whether SEP or EOS follows a text, unless the file says otherwise.
    """

    steps: tuple[Step, ...]
    whole_words: bool = False
    begins: bool = False
    separates: bool = False


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_LLAMA3, _QWEN2 = _WORDS % r"\p{N}{1,3}", _WORDS % r"\p{N}"
_QWEN35 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _SPACES
_SEED = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|" + _SPACES
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASES = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s|%s|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
)
_O200K = _CASES % (f"{_CONTRACTIONS}?", f"{_CONTRACTIONS}?", r"\p{N}{1,3}")
_TEKKEN = _CASES % ("", "", r"\p{N}")
_CJK, _CJK_AND_HANGUL = (
    r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
    r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+",
)
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    + _SPACES
)
_BLOOM = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+"
_CHAMELEON = (
    "<sentinel:[0-9]+>",
    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    GPT2_PATTERN,
)
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", GPT2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]")
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", GPT2_PATTERN, "[0-9][0-9][0-9]")
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_AND_HANGUL, r"\p{N}")
_DEEPSEEK_LLM = (
    r"[\r\n]",
    r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
    r"\s+$",
    _CJK_AND_HANGUL,
    r"\p{N}+",
)
_YOUTU = (
    r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|"
    + _CJK
)
_EXAONE_MOE = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|"
    r"\s+(?!\S)|\s+"
)


def _splits(*patterns: str) -> tuple[Step, ...]:
    return tuple(map(split, patterns))


_GPT2, _DIGIT = split(GPT2_PATTERN), split_characters(r"\p{N}", Behavior.ISOLATED)
_OF_LLAMA3 = PreTokenizer(_splits(_LLAMA3), whole_words=True, begins=True)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    name: own
    for names, own in (
        ("default", PreTokenizer(_splits(*_DEFAULT))),
        (
            "gpt-2 phi-2 mpt olmo jais trillion granite-docling jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 "
            "mellum modern-bert exaone4",
            PreTokenizer((_GPT2,)),
        ),
        ("jina-v1-en jina-v2-code roberta-bpe", PreTokenizer((_GPT2,), separates=True)),
        (
            "starcoder refact command-r smollm codeshell exaone minerva-7b",
            PreTokenizer((_DIGIT, _GPT2)),
        ),
        ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", _OF_LLAMA3),
        ("dbrx smaug-bpe glm4 chatglm-bpe", PreTokenizer(_splits(_LLAMA3))),
        (
            "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
            PreTokenizer(_splits(_QWEN2)),
        ),
        ("qwen35", PreTokenizer(_splits(_QWEN35))),
        ("gpt-4o llama4 kanana2 talkie minimax-m2", PreTokenizer(_splits(_O200K))),
        ("tekken", PreTokenizer(_splits(_TEKKEN), whole_words=True, begins=True)),
        ("deepseek-v3 hunyuan-dense joyai-llm", PreTokenizer(_splits(r"\p{N}{1,3}", _CJK, _DEEPSEEK3))),
        ("deepseek-coder", PreTokenizer(_splits(*_DEEPSEEK_CODER))),
        ("deepseek-llm", PreTokenizer(_splits(*_DEEPSEEK_LLM))),
        ("youtu", PreTokenizer(_splits(_YOUTU, _CASES % (f"{_CONTRACTIONS}?", f"{_CONTRACTIONS}?", r"\p{N}")), True)),
        ("falcon", PreTokenizer(_splits(*_FALCON))),
        ("bloom poro-chat gpt3-finnish", PreTokenizer(_splits(_BLOOM))),
        ("viking", PreTokenizer(_splits(_BLOOM, r"\p{N}"))),
        ("chameleon", PreTokenizer(_splits(*_CHAMELEON), begins=True)),
        ("bailingmoe bailingmoe2 llada-moe", PreTokenizer(_splits(_BAILING))),
        ("seed-coder", PreTokenizer(_splits(_SEED))),
        ("exaone-moe", PreTokenizer(_splits(_EXAONE_MOE))),
    )
    for name in names.split()
}
"""The pre-tokenizers by name."""
