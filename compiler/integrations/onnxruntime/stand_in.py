"""Runs a session while its model is still compiled in another process: by an installed onnxruntime, if there is one.

    session = nnefc.InferenceSession("model.onnx", background=True)

The first runs are onnxruntime's; when the library is there, runs are its own. Inputs are converted and checked, and
results are, in the same way. Without onnxruntime, the first run waits for the library.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnefc.loader import LoadError
from nnefc.support.diagnostics import CompileError

from .errors import Fail, refusal
from .options import SessionOptions

if TYPE_CHECKING:
    from nnefc.driver.caching.background import Background

    from .inputs import Feed

__all__ = ["StandIn"]


class StandIn:
    """A network that is being compiled."""

    def __init__(
        self, background: Background, begin: Callable[[Path], None], model: Any, options: SessionOptions | None
    ) -> None:
        """Waits for the library in a thread.

        Args:
            background: the compilation.
            begin: called with the file of the library, in the thread.
            model: what onnxruntime runs meanwhile.
            options: of the session; None: onnxruntime cannot run it with the same results.
        """
        self._background, self._begin = background, begin
        self._error: Exception | None = None
        self._session = None if options is None else _session(model, options)
        self._thread = threading.Thread(target=self._wait, name="nnefc-background", daemon=True)
        self._thread.start()

    def run(self, names: Sequence[str], feed: Feed) -> list[Any] | None:
        """Returns the outputs of these names; None if the library is there now and has to run.

        Raises:
            CompileError, LoadError: there is no library and no onnxruntime.
            Fail: onnxruntime has failed.
        """
        session = self._session
        if session is None:
            self._thread.join()
            if self._error is not None:
                raise self._error
            return None
        try:
            given = {name: value for name, value in feed.items() if value is not None}
            return list(session.run(list(names), given))
        except Exception as error:
            raise refusal(Fail, f"onnxruntime, which runs until the model is compiled, has failed: {error}") from error

    def wait(self) -> None:
        """Waits for the end of the compilation."""
        self._thread.join()

    def _wait(self) -> None:
        try:
            self._begin(self._background.library())
        except (CompileError, LoadError) as error:
            self._error = error
            if self._session is not None:
                warnings.warn(
                    f"the model could not be compiled in the background, and onnxruntime goes on: {error}",
                    RuntimeWarning,
                    stacklevel=2,
                )
        finally:
            self._background.close()


def _session(model: Any, options: SessionOptions) -> Any:
    """Returns a session of onnxruntime; None where it is not installed, is this package, or refuses the model."""
    try:
        import onnxruntime
    except ImportError:
        return None
    if Path(onnxruntime.__file__).parent == Path(__file__).parent:  # this package, installed in its position
        return None
    own = onnxruntime.SessionOptions()
    own.intra_op_num_threads = max(0, options.intra_op_num_threads)
    own.log_severity_level = 3
    for (kind, name), size in options._dimensions.items():
        add = own.add_free_dimension_override_by_name if kind == "name" else None
        if add is None:
            return None
        add(name, size)
    try:
        given = model if isinstance(model, bytes) else os.fspath(model)
        return onnxruntime.InferenceSession(given, own, providers=["CPUExecutionProvider"])
    except Exception:  # of many classes: the library runs what this one does not
        return None
