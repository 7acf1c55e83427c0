"""Lists the C functions of a library: their names, types and parameters."""

from __future__ import annotations

from nnefc.targets.description.library import DEFAULT_PREFIX, DEVICES, LibraryDescription

__all__ = ["declarations", "functions_of", "public_symbols"]


_FUNCTIONS = {  # name after the prefix → what it returns, its parameters, the arguments of a call
    "check": ("nnefc_status", "void", ""),
    "create": ("nnefc_status", "const nnefc_options *options, nnefc_session **session", "options, session"),
    "describe": ("const nnefc_description *", "void", ""),
    "destroy": ("nnefc_status", "nnefc_session *session", "session"),
    "last_error": ("const char *", "const nnefc_session *session", "session"),
    "reset": ("nnefc_status", "nnefc_session *session", "session"),
    "run": (
        "nnefc_status",
        "nnefc_session *session, const void *const *inputs, void *const *outputs",
        "session, inputs, outputs",
    ),
    "status_name": ("const char *", "nnefc_status status", "status"),
}


_DYNAMIC_FUNCTIONS = {  # besides those, in libraries with dynamic dimensions
    "output_shape": ("const int64_t *", "const nnefc_session *session, uint32_t output", "session, output"),
    "reserve": (
        "nnefc_status",
        "nnefc_session *session, const int64_t *sizes, int32_t outputs",
        "session, sizes, outputs",
    ),
    "resize": (
        "nnefc_status",
        "nnefc_session *session, const int64_t *const *input_shapes",
        "session, input_shapes",
    ),
    "run_sized": (
        "nnefc_status",
        "nnefc_session *session, const nnefc_input *inputs, nnefc_output *outputs",
        "session, inputs, outputs",
    ),
}


_STATE_FUNCTIONS = {  # besides those, in libraries of networks with states
    "copy_states": ("nnefc_status", "nnefc_session *session, nnefc_session *other", "session, other"),
    "get_state": ("nnefc_status", "nnefc_session *session, uint32_t state, void *data", "session, state, data"),
    "set_state": ("nnefc_status", "nnefc_session *session, uint32_t state, const void *data", "session, state, data"),
}


_SEQUENCE_FUNCTIONS = {  # besides those, in libraries of networks that keep sequences of tokens
    "copy_sequence": (
        "nnefc_status",
        "nnefc_session *session, int64_t sequence, nnefc_session *other, int64_t from, int64_t positions",
        "session, sequence, other, from, positions",
    ),
    "measure_states": ("nnefc_status", "nnefc_session *session, nnefc_state_bytes *bytes", "session, bytes"),
}


_VOCABULARY_FUNCTIONS = {  # besides those, in libraries with a tokenizer
    "detokenize": (
        "nnefc_status",
        "const int64_t *tokens, size_t count, uint32_t flags, char *text, size_t room, size_t *size",
        "tokens, count, flags, text, room, size",
    ),
    "tokenize": (
        "nnefc_status",
        "const char *text, size_t size, uint32_t flags, int64_t *tokens, size_t room, size_t *count",
        "text, size, flags, tokens, room, count",
    ),
}


_CHAT_FUNCTIONS = {  # besides those, in libraries with a chat template
    "chat": (
        "nnefc_status",
        "const nnefc_message *messages, size_t count, const nnefc_chat_options *options, char *text, size_t room, "
        "size_t *size",
        "messages, count, options, text, room, size",
    ),
}


_PROFILE_FUNCTIONS = {  # besides those, in libraries that time their kernels
    "profile": ("uint32_t", "nnefc_kernel_times *times, uint32_t count", "times, count"),
    "profile_reset": ("void", "void", ""),
    "profile_trace": ("uint64_t", "nnefc_piece *pieces, uint64_t room", "pieces, room"),
}


_CONTROL_FUNCTIONS = {  # besides those, in libraries whose runs ask the runtime between two kernels
    "cancel": ("nnefc_status", "nnefc_session *session", "session"),
    "run_async": (
        "nnefc_status",
        "nnefc_session *session, const void *const *inputs, void *const *outputs, nnefc_done *done, void *context",
        "session, inputs, outputs, done, context",
    ),
    "session_times": (
        "uint32_t",
        "const nnefc_session *session, nnefc_kernel_times *times, uint32_t count",
        "session, times, count",
    ),
    "set_time_limit": ("nnefc_status", "nnefc_session *session, int64_t nanoseconds", "session, nanoseconds"),
    "threads_count": ("uint32_t", "const nnefc_threads *threads", "threads"),
    "threads_create": ("nnefc_status", "const nnefc_options *options, nnefc_threads **threads", "options, threads"),
    "threads_destroy": ("nnefc_status", "nnefc_threads *threads", "threads"),
    "threads_run": (
        "void",
        "void *threads, uint32_t count, void (*task)(void *context, uint32_t i), void *context",
        "threads, count, task, context",
    ),
    "time_kernels": ("nnefc_status", "nnefc_session *session, int32_t on", "session, on"),
}


_SELECTION_FUNCTIONS = {  # besides those, in libraries that may leave out outputs
    "select_outputs": ("nnefc_status", "nnefc_session *session, const uint8_t *outputs", "session, outputs"),
}


_SIZED_CONTROL_FUNCTIONS = {  # besides those, with dynamic dimensions
    "run_sized_async": (
        "nnefc_status",
        "nnefc_session *session, const nnefc_input *inputs, nnefc_output *outputs, nnefc_done *done, void *context",
        "session, inputs, outputs, done, context",
    ),
}


_LOG_FUNCTIONS = {  # besides those, in libraries that log
    "set_log": ("void", "nnefc_log *log, void *context, int32_t level", "log, context, level"),
}


def functions_of(description: LibraryDescription) -> dict[str, tuple[str, str, str]]:
    """Return the functions of a library: name after the prefix → return type, parameters, arguments of a call."""
    own = {**_FUNCTIONS, **DEVICES[description.device].functions}
    own |= _DYNAMIC_FUNCTIONS if description.is_dynamic else {}
    own |= _STATE_FUNCTIONS if description.states else {}
    own |= _SEQUENCE_FUNCTIONS if description.sequence_axes else {}
    own |= _CONTROL_FUNCTIONS if description.cancellable else {}
    own |= _SIZED_CONTROL_FUNCTIONS if description.cancellable and description.is_dynamic else {}
    own |= _SELECTION_FUNCTIONS if description.selects else {}
    own |= _LOG_FUNCTIONS if description.logs else {}
    own |= _VOCABULARY_FUNCTIONS if description.has_vocabulary else {}
    own |= _CHAT_FUNCTIONS if description.has_chat else {}
    own |= _PROFILE_FUNCTIONS if description.kernels else {}
    return dict(sorted(own.items()))


def public_symbols(description: LibraryDescription, prefix: str = DEFAULT_PREFIX) -> tuple[str, ...]:
    """Return the names of a library's functions, sorted, with the given prefix."""
    return tuple(f"{prefix}_{name}" for name in functions_of(description))


def declarations(description: LibraryDescription) -> str:
    """Returns the prototypes of the functions with the description's prefix, in C."""
    return "".join(
        f"NNEFC_API {result}{'' if result.endswith('*') else ' '}{description.prefix}_{name}({parameters});\n"
        for name, (result, parameters, _) in functions_of(description).items()
    )
