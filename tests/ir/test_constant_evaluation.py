"""Values of bindings that depend on constants alone."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from nnefc.ir.constant_evaluation import evaluate
from nnefc.support.mapped_files import ALIGNMENT, LARGE, tensor_of


def test_constants_at_any_byte_of_their_file_are_computed_with() -> None:
    """Constants shared from a file are copied to an aligned address; calls and tuples of them keep their types."""
    memory = np.zeros(LARGE + 2 * ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT + 4
    values = memory[begin : begin + LARGE].view(np.float32)
    values[:] = np.arange(len(values))
    values.flags.writeable = False  # as the content of a file is
    constant = relax.const(tensor_of(values))
    assert constant.value.data_ptr() % ALIGNMENT
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            total = builder.emit(relax.op.add(constant, constant))
            parts = builder.emit(relax.Tuple([constant, total]))
            joined = builder.emit(relax.op.concat(parts, axis=0))
            result = builder.emit_output(joined)
        builder.emit_func_output(result)
    bindings = [binding for block in builder.finalize()["main"].body.blocks for binding in block.bindings][:3]
    (found,) = evaluate(bindings, [bindings[2].var], {})
    assert isinstance(found, tvm.runtime.Tensor)
    np.testing.assert_array_equal(found.numpy(), np.concatenate([values, 2 * values]))
