""":class:`Model`: a loaded network together with one session."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import numpy as np

from .arrays import address_of, source_of
from .chat import rendered
from .encrypted_weights import WeightsKey
from .library import Library
from .private_files import PrivateFile, private_file_of
from .profile import KernelTime, Piece, kernel_times, traced
from .session import Session
from .tensors import DTYPES, MAX_LISTED, LoadError, RunError, StateMemory, Tensor, check_names, listed
from .tokenizer import TextStream, decoded, encoded, streamed

if TYPE_CHECKING:
    from .sampling import Sampling

__all__ = ["Model", "load"]

_IN_MEMORY = "library in memory"
_POSITIONS = "P"
"""The state that has the number of tokens in each sequence."""
_RECURRENT, _REWIND_LIMIT = "recurrent_", "rewind_limit"
"""Prefixes of states' names: states that accumulate over all tokens, and those that limit how far a sequence can be
rewound."""


def load(
    path: str | os.PathLike[str] | bytes | bytearray | memoryview,
    *,
    threads: int | None = None,
    weights: str | os.PathLike[str] | None = None,
    device: int = 0,
    flush_subnormals: bool = True,
    processors: Sequence[int] | None = None,
    key: str | os.PathLike[str] | None = None,
    weights_key: WeightsKey | None = None,
) -> Model:
    """Load a compiled network.

    Args:
        path: the library's path, or its content as bytes. On Linux and Android, bytes are opened in memory, without a
            file. A weights file must be given by `weights` then.
        threads: of the session; None: the value of the environment variable NNEFC_NUM_THREADS, or else the number of
            processors that this process may use.
        weights: the weights file of a library compiled with `--weights separate`; None: the file in the library's
            folder that was written with the library.
        device: the number of the GPU to run on, as NVIDIA's driver counts; 0 for a network that runs on CPUs.
        flush_subnormals: whether runs treat subnormal numbers, smaller than about 1e-38, as zero. Runs that keep them
            can take several times as long.
        processors: the number of a processor for each of the session's threads; the first is ignored, since the calling
            thread stays where it is. On Linux only.
        key: a PEM file with a public key, by whose private key the library must be signed (`nnefc sign`). A private
            copy of the library and of its weights file is loaded, which no other user can change.
        weights_key: the key of an encrypted weights file (`nnefc compile --encrypt`): its 32 bytes, a file with these,
            or a function that returns them for the path of the weights file, called if the file is encrypted. The
            package `cryptography` decrypts the weights into memory.

    Raises:
        LoadError: there is no such file, its signature is wrong, the key of its weights file is wrong, it is not a
            compiled network, it is for another machine, processor or version of the interface, or there is no GPU of
            this number that can run it.
    """
    weights_path = None if weights is None else Path(weights)
    if isinstance(path, (bytes, bytearray, memoryview)):
        if key is not None:
            raise LoadError("a signature is a file next to the library: load the library by its path")
        content = private_file_of(path, _IN_MEMORY)
        return Model(
            Library(Path(_IN_MEMORY), weights_path, weights_key, (content, None)),
            threads,
            device,
            flush_subnormals,
            processors,
        )
    if not isinstance(path, str | os.PathLike):
        raise LoadError(f"a network is loaded from the path of its library or the bytes of it, not from {path!r:.80}")
    copies: tuple[PrivateFile, PrivateFile | None] | None = None
    if key is not None:
        from .signature import checked_copies

        copies = checked_copies(Path(path), Path(key), weights_path)
    library = Library(Path(path), weights_path, weights_key, copies)
    return Model(library, threads, device, flush_subnormals, processors)


class Model:
    """A loaded network with its own session, made by :func:`load`; a context manager.

    Attributes:
        name: the network's name.
        target: for which it was compiled.
        compiler: the compiler and its version.
        inputs, outputs, states: tuples of :class:`Tensor`.
        dimensions: the dynamic dimensions, a tuple of :class:`Dimension`; empty if all sizes are known.
        workspace_bytes, constant_bytes, state_bytes: memory of the workspace, the constants, the states.
        cpu_features: the instruction sets that the code needs.
        variables: the model's names of its constants.
        labels: the classes that the columns of an output stand for, integers or texts, by the output's name.
        metadata: texts by key: `producer_name`, `producer_version`, `domain`, `model_version`, `doc_string` and
            `graph_doc_string` of ONNX, those that the model has, and the author's own entries.
        source: "sha256:" and the digest of the model's files; "" if unknown.
        weights: the name of the weights file; None if the constants are in the library.
        device: on which it runs: "cpu", or "cuda:0" with the GPU's number.
        device_bytes: GPU memory of a session, without the constants.
        file: the file with the loaded library: its path, or with a `key` the path of the checked copy, which exists
            until the library is closed.
    """

    def __init__(
        self,
        library: Library,
        threads: int | None,
        device: int,
        flush_subnormals: bool,
        processors: Sequence[int] | None = None,
    ) -> None:
        self._library = library
        self.file = library.file
        self._session = Session(library, threads, device, flush_subnormals, processors)
        self._times_kernels = False
        self.name = library.name
        self.target = library.target
        self.compiler = library.compiler
        self.inputs = library.inputs
        self.outputs = library.outputs
        self._input_names = [tensor.name for tensor in self.inputs]
        self._output_names = [tensor.name for tensor in self.outputs]
        self.states = library.states
        self.dimensions = library.dimensions
        self.workspace_bytes = library.workspace_bytes
        self.constant_bytes = library.constant_bytes
        self.state_bytes = library.state_bytes
        self.cpu_features = library.cpu_features
        self.variables = library.variables
        self.labels = library.labels
        self.metadata = library.metadata
        self.source = library.source
        self.weights = library.weights
        self.device = "cpu" if library.device == "cpu" else f"{library.device}:{device}"
        self.device_bytes = library.device_bytes

    def __call__(
        self, /, *arrays: Any, out: Any = None, stream: Any = None, check_nan: bool = False, **named: Any
    ) -> Any:
        """Run on inputs by position, by name, or both; return the output, or a tuple if there are several.

        An input that has the name of one of the keywords below can be given by position, or to :meth:`run`.

        Args:
            arrays, named: the inputs.
            out: an array (for one output) or a sequence of arrays, one for each output, to write into and return: NumPy
                arrays, or other writable ones with `__dlpack__`, such as PyTorch tensors. For a network on a GPU also
                arrays in its memory, or "device": outputs in GPU memory, each a :class:`DeviceArray`.
            stream: of CUDA, for a network on a GPU: its handle, or another library's stream object. The run starts
                after earlier work on the stream, and the call returns without waiting for it. All arrays must be in GPU
                memory, and the inputs must not change until the stream has finished the run. If the run fails, the next
                call raises the error.
            check_nan: whether NaN in an input or an output is an error.

        Raises:
            RunError: inputs or arrays of `out` do not fit, the model is closed, the network's code fails, or there is a
                NaN and `check_nan` is set.
        """
        values: Sequence[Any] = self._by_position(arrays, named) if named else arrays
        targets = out if out is None or isinstance(out, (str, tuple, list)) else [out]
        if stream is None and not (check_nan or isinstance(targets, str)):
            found = self._session.run_exact(values, targets)
            if found is not None:
                return found[0] if len(found) == 1 else tuple(found)
        if len(values) != len(self.inputs):
            values = self._by_position(arrays, named)
        if targets is not None and not isinstance(targets, str) and len(targets) != len(self.outputs):
            raise RunError(f"out has {len(targets)} arrays, but the model has {len(self.outputs)} outputs")
        results = self._session.run(values, targets, stream, check_nan)
        return results[0] if len(results) == 1 else tuple(results)

    def run(
        self,
        inputs: Mapping[str, Any],
        out: Mapping[str, Any] | str | None = None,
        *,
        stream: Any = None,
        check_nan: bool = False,
        outputs: Collection[str] | None = None,
    ) -> dict[str, Any]:
        """Run on inputs by name; return the outputs by name.

        Args:
            inputs: an array for each input.
            out: arrays to write into, for some or all outputs; or "device".
            stream, check_nan: as in :meth:`__call__`.
            outputs: the names of the outputs to return; None: all. Kernels that these do not need are skipped, except
                on GPUs and in libraries compiled for size or by an earlier version.

        Raises:
            RunError: as :meth:`__call__`.
        """
        if type(inputs) is not dict and not isinstance(inputs, Mapping):
            kind = "None" if inputs is None else f"a {type(inputs).__name__}"
            raise RunError(f"run got {kind} in place of inputs by name: {self._usage()}; all outputs are returned")
        if list(inputs) != self._input_names:
            check_names("input", inputs, self.inputs, complete=True)
            inputs = {name: inputs[name] for name in self._input_names}
        values, names = tuple(inputs.values()), self._output_names
        if out is not None and not isinstance(out, (str, dict, Mapping)):
            raise RunError(f"out of run is a {type(out).__name__}, not arrays by the names of outputs")
        targets: Sequence[Any] | str | None = None
        if isinstance(out, str):
            targets = out
        elif out is not None:
            if list(out) != names:
                check_names("output", out, self.outputs, complete=False)
            targets = [out.get(name) for name in names]
        if outputs is None or list(outputs) == names:
            if stream is None and not (check_nan or isinstance(targets, str)):
                found = self._session.run_exact(values, targets)
                if found is not None:
                    return dict(zip(names, found))  # noqa: B905 (which takes time)
            return dict(zip(names, self._session.run(values, targets, stream, check_nan), strict=True))
        check_names("output", dict.fromkeys(outputs), self.outputs, complete=False)
        wanted = tuple(number for number, name in enumerate(names) if name in outputs)
        if len(wanted) == len(names) or not self._session.selects:
            results = self._session.run(values, targets, stream, check_nan)
            return {names[number]: results[number] for number in wanted}
        if targets is not None and not isinstance(targets, str):
            targets = [targets[number] for number in wanted]
        results = self._session.run(values, targets, stream, check_nan, wanted)
        return dict(zip((names[number] for number in wanted), results, strict=True))

    def synchronize(self) -> None:
        """Wait for runs that were started on streams, and raise their errors."""
        self._session.synchronize()

    def reserve(self, sizes: Mapping[str, int] | None = None) -> None:
        """Allocate memory for dynamic dimensions up to the given sizes, so that later calls allocate none.

        Args:
            sizes: by name of the dimension; for others the maximum counts. None: the maximum of all.

        Raises:
            RunError: the network has no such dimension or a smaller maximum, or there is not enough memory.
        """
        self._session.reserve(sizes or {})

    def cancel(self) -> None:
        """Cancel the run of another thread before its next kernel; that thread's call raises :class:`RunCancelled`.

        Runs that begin later are not affected. A run whose last kernel has begun completes. States are undefined after
        a cancelled run: :meth:`reset` restores them.

        Raises:
            RunError: the model runs on a GPU, or its library has been compiled for size or by an earlier version.
        """
        self._session.cancel()

    def set_time_limit(self, seconds: float | None) -> None:
        """Limit the time of each later call: a call that takes longer raises :class:`RunTimedOut`.

        The time is checked before each kernel; a kernel that has begun is not interrupted. States are undefined after
        such a call: :meth:`reset` restores them. Sessions that are made from this one later, by :meth:`session`,
        :meth:`fork` or a :class:`SessionPool`, have the same limit.

        Args:
            seconds: the limit; None: no limit, the default.

        Raises:
            RunError: `seconds` is not positive, the model runs on a GPU, or its library has been compiled for size or
                by an earlier version.
        """
        self._session.set_time_limit(seconds)

    @property
    def has_tokenizer(self) -> bool:
        """Whether the library has the tokenizer of a language model."""
        return hasattr(self._session.library.dll, "nnefc_tokenize")

    def tokenize(self, text: str, *, begin_and_end: bool = True, control: bool = False) -> list[int]:
        """Return the tokens of a text.

        Args:
            text: any text.
            begin_and_end: whether the tokens that the model expects before and after a text are added.
            control: whether texts of control tokens, such as `<|im_end|>`, become these tokens, as in a rendered chat
                template. If not, they are treated as ordinary text, so that a user's text cannot end a message.

        Raises:
            RunError: the library has no tokenizer: compile the model with the option `tokenizer`.
        """
        return encoded(self._tokenizer(), text, begin_and_end, control)

    def detokenize(self, tokens: Sequence[int], *, skip_control: bool = True) -> str:
        """Return the text of tokens; bytes that are not UTF-8 become U+FFFD.

        Args:
            tokens: numbers of tokens.
            skip_control: whether control tokens are left out.

        Raises:
            RunError: the library has no tokenizer, or a number is not a token.
        """
        return decoded(self._tokenizer(), tokens, skip_control, continues=False).decode(errors="replace")

    def detokenize_stream(self, tokens: Iterable[int], *, skip_control: bool = True) -> Iterator[str]:
        """Yield the text that each token adds, for tokens such as those of :meth:`generate`.

        A character of several tokens is yielded with its last token, and "" with the others.

        Raises:
            RunError: as :meth:`detokenize`.
        """
        return streamed(self._tokenizer(), tokens, skip_control)

    def token_bytes(self, token: int) -> tuple[bytes, bool]:
        """Return the bytes of a token in the middle of a text, and whether it is a control token.

        Raises:
            RunError: the library has no tokenizer, or the number is not a token.
        """
        library = self._tokenizer()
        text = decoded(library, [token], skip_control=False, continues=True)
        return text, bool(text) and not decoded(library, [token], skip_control=True, continues=True)

    def text_stream(self, *, skip_control: bool = True) -> TextStream:
        """Return an object that detokenizes tokens one by one, as :meth:`detokenize_stream`.

        Raises:
            RunError: the library has no tokenizer.
        """
        return TextStream(self._tokenizer(), skip_control)

    @property
    def has_chat(self) -> bool:
        """Whether the library renders conversations by the model's chat template."""
        return hasattr(self._session.library.dll, "nnefc_chat")

    def chat_text(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Render a conversation by the model's chat template.

        Tokenize the text with `begin_and_end=False, control=True`.

        Args:
            messages: objects of JSON such as `{"role": "user", "content": "…"}`, as chat templates expect them.
            tools: descriptions of functions that the model may call; None for none.
            add_generation_prompt: whether the text ends with the beginning of the next reply.
            variables: further variables of the template, such as `{"enable_thinking": False}`.

        Raises:
            RunError: the template refuses the conversation or exceeds a limit, or the library has none: its template
                could not be compiled, or the model has no chat template.
        """
        return rendered(self._session.library, messages, tools, add_generation_prompt, variables or {})

    def _tokenizer(self) -> Library:
        if not self.has_tokenizer:
            raise RunError(f"{self.name} has no tokenizer: compile the model with the option tokenizer")
        return self._session.library

    def reset(self) -> None:
        """Restore the initial values of the states."""
        self._session.call("nnefc_reset")

    def read_state(self, name: str) -> np.ndarray:
        """Return a copy of a state.

        Raises:
            RunError: the model has no state of this name, or is closed.
        """
        number, tensor = self._state(name)
        array = np.empty(tensor.shape, DTYPES[tensor.dtype])
        self._session.call("nnefc_get_state", number, address_of(array))
        return array

    @property
    def can_rewind(self) -> bool:
        """Whether a session can forget any number of the last tokens that it has read.

        A session with a state that accumulates over all tokens, as in convolutions or state-space layers, can only
        forget all of them. A session with windowed layers can go back as far as :meth:`can_rewind_to` says.
        """
        return not any(state.name.startswith((_RECURRENT, _REWIND_LIMIT)) for state in self.states)

    def can_rewind_to(self, count: int, sequence: int = 0) -> bool:
        """Return whether a session can forget all tokens of a sequence but the first `count`; true for 0.

        Args:
            count: less than the number of tokens in the sequence.
            sequence: its number, if the session holds several.
        """
        if count == 0:
            return True
        names = [state.name for state in self.states]
        if any(name.startswith(_RECURRENT) for name in names):
            return False
        limits = [self.read_state(name) for name in names if name.startswith(_REWIND_LIMIT)]
        return all(count >= limit[sequence] for limit in limits)

    def write_state(self, name: str, value: Any) -> None:
        """Overwrite a state.

        A network forgets its last tokens if the state that counts them is made smaller.

        Args:
            name: of the state.
            value: an array of the state's shape and element type, or an int for a scalar state.

        Raises:
            RunError: the model has no state of this name or is closed, or the value does not fit.
        """
        number, tensor = self._state(name)
        array = np.asarray(value, DTYPES[tensor.dtype] if isinstance(value, int) else None)
        source = source_of(tensor, array, "state")
        self._session.call("nnefc_set_state", number, address_of(source))

    @property
    def copies_sequences(self) -> bool:
        """Whether sequences of tokens can be copied, as :meth:`copy_sequence` does."""
        return self._session.copies_sequences

    def copy_sequence(self, source: int, target: int, count: int | None = None, *, to: Model | None = None) -> None:
        """Make a sequence the first tokens of another one, without a run.

        On 64-bit Linux both sequences share the memory pages of these tokens until one of them writes there; elsewhere
        the used memory is copied.

        Args:
            source: the number of a sequence of this session; 0 if the network holds only one.
            target: the number of a sequence of the same session, or of `to`.
            count: of tokens, a number that `source` could be rewound to (:meth:`can_rewind_to`); None: all.
            to: another session of the same library, which must not be in use; None: this session.

        Raises:
            RunError: there is no such sequence, it has fewer tokens or cannot be rewound to `count`, or the library
                cannot copy sequences or was compiled by an earlier version.
        """
        counts = self.read_state(_POSITIONS).reshape(-1)
        held = int(counts[source]) if 0 <= source < len(counts) else 0  # else the library says what is wrong
        wanted = held if count is None else count
        if 0 < wanted < held and not self.can_rewind_to(wanted, source):
            raise RunError(f"sequence {source} has {held} tokens, and cannot be set back to {wanted} of them")
        session = self._session if to is None else to._session
        session.copy_sequence(target, self._session, source, wanted)

    @property
    def state_memory(self) -> StateMemory:
        """The machine's memory that the states take now.

        Raises:
            RunError: the library has no sequences, or was compiled by an earlier version.
        """
        return self._session.state_memory()

    def fork(self, *, threads: int | None = None) -> Model:
        """Return another session of the same network, with a copy of this session's states; `threads` as in `load`."""
        made = self.session(threads=threads)
        if self.states:
            self._session.copy_states_to(made._session)
        return made

    def generate(
        self,
        tokens: Sequence[int],
        *,
        most: int,
        end: int | Sequence[int] = (),
        history: Sequence[int] = (),
        **sampling: Unpack[Sampling],
    ) -> Iterator[int]:
        """Generate tokens that follow a prompt, with a language model whose states cache all tokens that it has read.

        The session reads `tokens`, in chunks of some hundreds, and then each generated token except for the last one.

        Args:
            tokens: the prompt, without what the session has read before; at least one token.
            most: maximum number of tokens to generate.
            end: the tokens that end the generation; they are not yielded.
            history: the tokens that the session has read before, for `repetition_penalty`.
            sampling: options of :class:`nnefc.loader.sampling.Sampler`: `temperature` (0, the default: the likeliest
                token), `top_k`, `top_p`, `min_p`, `typical_p`, `repetition_penalty`, `presence_penalty`,
                `frequency_penalty`, `logit_bias`, `mask`, and `seed` for reproducible tokens.

        Raises:
            RunError: the network is not a language model, an option is out of its range, or, while tokens are
                generated, they exceed the network's context.
        """
        from .generation import Reader, generated  # imported here, since few networks need it
        from .sampling import Sampler

        reader = Reader(self, self.inputs, self.outputs)
        sampler = Sampler(**sampling)
        sampler.note(history)
        return generated(reader, tokens, most, _numbers_of(end), sampler)

    def generate_all(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        most: int,
        end: int | Sequence[int] = (),
        **sampling: Unpack[Sampling],
    ) -> Iterator[tuple[int, int]]:
        """Generate tokens that follow several prompts, in parallel, with a network that holds several sequences.

        Yields pairs of a prompt's number and a token, as tokens are generated. Each prompt gets a sequence, which
        forgets its earlier tokens. If there are more prompts than sequences, a prompt waits until another one has
        ended. A prefix that several prompts of this call have in common is read once.

        Args:
            prompts: tokens of each, at least one.
            most: maximum number of tokens to generate for each prompt.
            end, sampling: as in :meth:`generate`; prompt `n` has the seed `seed + n`.

        Raises:
            RunError: as :meth:`generate`, or the network holds only one sequence.
        """
        from .generation import Reader, Sequences, generated_side_by_side
        from .sampling import Sampler

        reader = Reader(self, self.inputs, self.outputs)
        if not reader.takes_sequences:
            raise RunError(f"{self.name} remembers one sequence: it has no input of sequences")
        seed = sampling.get("seed")
        seeds = [None if seed is None else seed + n for n in range(len(prompts))]
        samplers = [Sampler(**(sampling | {"seed": each})) for each in seeds]
        sequences = Sequences(self.read_state(_POSITIONS).size, self._begin_sequence)
        return generated_side_by_side(reader, prompts, sequences, most, _numbers_of(end), samplers)

    def score(self, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return how probable each token of a text is behind the ones before it, by a language model's logits.

        The session's first sequence forgets what it has read, and reads the text without its last token: in blocks if
        the network returns the logits of all tokens of a run (compile a model with the option `all_logits`), and token
        by token if it returns those of the last.

        Args:
            tokens: of the text, at least two.

        Returns:
            for each token but the first, the natural logarithm of its probability, float64 `[tokens - 1]`, and the
            likeliest token in its position, int64 `[tokens - 1]`: for greedy decoding and perplexity.

        Raises:
            RunError: the network is not a language model or returns no logits, it has no state that counts tokens,
                there are fewer than two tokens, or more than its context has.
        """
        from .generation import Reader, scores

        reader = Reader(self, self.inputs, self.outputs)
        lengths = self.read_state(_POSITIONS)
        lengths.reshape(-1)[0] = 0
        self.write_state(_POSITIONS, lengths)
        return scores(reader, tokens)

    def _begin_sequence(self, number: int, source: int, count: int) -> int:
        """Make a sequence the first tokens of another one; return their number, 0 if that is impossible."""
        counts = self.read_state(_POSITIONS)
        can_copy = self.copies_sequences or number == source
        if not can_copy or (count < counts[source] and not self.can_rewind_to(count, source)):
            count = 0
        if count and number != source:
            self.copy_sequence(source, number, count)
        else:
            counts[number] = count
            self.write_state(_POSITIONS, counts)
        return count

    def time_kernels(self, on: bool = True) -> None:
        """Start to measure the time of each kernel in this session's runs, from zero; with `on` false, stop.

        :meth:`profile` returns the times. The time of a kernel ends when the next one begins. Runs that are not
        measured, the default, are not slowed down.

        Raises:
            RunError: the library is for a GPU or WebAssembly, or was compiled for size or by an earlier version.
        """
        self._session.call("nnefc_time_kernels", int(on))
        self._times_kernels |= on

    @property
    def is_profiled(self) -> bool:
        """Whether the library was compiled with profiling: it always measures kernels, and can trace threads."""
        return self._library.takes_times

    def profile(self) -> list[KernelTime]:
        """Return the time of each kernel in the runs of this session since :meth:`time_kernels`.

        For a library that was compiled with profiling and without a call of :meth:`time_kernels`, the times are those
        of all sessions since the library was loaded, or since :meth:`forget_profile`.

        Raises:
            RunError: kernels are not measured.
        """
        handle = self._session.open()
        if self._times_kernels:
            return kernel_times(partial(self._library.function("nnefc_session_times"), handle))
        return kernel_times(self._timing_library().dll.nnefc_profile)

    def forget_profile(self) -> None:
        """Reset the measured times of kernels to zero.

        Raises:
            RunError: kernels are not measured.
        """
        self._session.open()
        if self._times_kernels:
            self.time_kernels()
        else:
            self._timing_library().dll.nnefc_profile_reset()

    def trace(self, inputs: Mapping[str, Any], *, most: int | None = None) -> list[Piece]:
        """Run once, and return when which thread executed which part of a kernel, and the complete calls of kernels.

        The pieces of other sessions of the library that run meanwhile are included.

        Args:
            inputs: an array for each input, by name.
            most: maximum number of pieces, for which memory is allocated, 24 bytes each; None: a million, and a run
                with more pieces is repeated with more memory.

        Raises:
            RunError: the library was not compiled with profiling, there are more pieces, or as :meth:`run`.
        """
        return traced(self._timing_library().function("nnefc_profile_trace"), lambda: self.run(inputs), most)

    def _timing_library(self) -> Library:
        if not self._library.takes_times:
            raise RunError(
                f"the library of {self.name} does not time its kernels: call time_kernels() before its runs, or "
                "compile the model with --profile, which shows threads, too"
            )
        return self._library

    def session(self, *, threads: int | None = None, device: int | None = None) -> Model:
        """Return another session of the same network, with its own states, for another thread or on another GPU.

        Args:
            threads: as in `load`.
            device: the number of the GPU; None: that of this session.
        """
        self._session.open()
        number = self._session.number if device is None else device
        made = Model(self._library, threads, number, self._session.flush_subnormals)
        if self._session.time_limit is not None:
            made.set_time_limit(self._session.time_limit)
        return made

    def close(self) -> None:
        """Free the session. The library is unloaded when its last session is closed. Closing twice does nothing."""
        self._session.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        session: Session | None = getattr(self, "_session", None)
        if session is not None and session.is_open:
            with suppress(RunError):  # a session that a fork caught in a run cannot be freed in the child
                self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse copies: two objects would free one session."""
        raise TypeError(
            f"a loaded model cannot be copied or pickled: model.session() makes a further session of {self.name}; "
            "another process loads the library by its path"
        )

    def __repr__(self) -> str:
        arrow = f"{listed(self.inputs)} -> {listed(self.outputs)}"
        return f"<Model {self.name} for {self.target}: {arrow}>"

    def _repr_html_(self) -> str:
        from .notebook import interface_html

        kinds = (("input", self.inputs), ("output", self.outputs), ("state", self.states))
        facts = [
            ("constants", f"{self.constant_bytes:,} bytes"),
            ("workspace", f"{self.workspace_bytes:,} bytes a session"),
            ("runs on", self.device),
        ]
        return interface_html(f"Model {self.name} for {self.target}", kinds, facts)

    def _state(self, name: str) -> tuple[int, Tensor]:
        for number, tensor in enumerate(self.states):
            if tensor.name == name:
                return number, tensor
        raise RunError(f'the model has no state "{name}"; its states are {listed(self.states)}')

    def _usage(self) -> str:
        """Return an example of a call for messages, by name and by position."""
        names = [tensor.name for tensor in self.inputs[:MAX_LISTED]]
        more = ", …" if len(self.inputs) > len(names) else ""
        by_name = ", ".join(f'"{name}": array' for name in names)
        return f"write model.run({{{by_name}{more}}}), or model({', '.join(['array'] * len(names))}{more})"

    def _by_position(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """Return the inputs in the model's order.

        Raises:
            RunError: there are too many inputs, or one is unknown, missing or given twice.
        """
        if len(arrays) > len(self.inputs):
            raise RunError(f"{len(arrays)} inputs given, but the model has {len(self.inputs)}: {listed(self.inputs)}")
        given = {tensor.name: array for tensor, array in zip(self.inputs, arrays, strict=False)}
        doubled = [name for name in named if name in given]
        if doubled:
            raise RunError(f'input "{doubled[0]}" is given twice, by position and by name')
        given |= named
        check_names("input", given, self.inputs, complete=True)
        return [given[tensor.name] for tensor in self.inputs]


def _numbers_of(end: int | Sequence[int]) -> list[int]:
    return [end] if isinstance(end, int) else list(end)
