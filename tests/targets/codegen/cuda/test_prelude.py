"""What CUDA source begins with; another TVM, with other sources, must not go unnoticed."""

import pytest

from nnefc.targets.codegen.cuda.prelude import PRELUDE, replace_prelude

OF_TVM = """#ifdef __CUDACC_RTC__
typedef int int32_t;
#else
#include <cuda.h>
#endif
#ifdef _WIN32
  using uint = unsigned int;
#else
  #define ushort unsigned short
#endif
"""
KERNEL = 'extern "C" __global__ void k(float *x) { x[0] = max(x[1], x[2]); }\n'


def test_declarations_before_the_first_function_stay() -> None:
    made = replace_prelude(OF_TVM + "\n__device__ int helper;\n" + KERNEL)
    assert made.startswith(PRELUDE + "__device__ int helper;\n") and made.endswith(KERNEL)
    assert "#include <cuda.h>" not in made and "#define max nnefc_max" in made


@pytest.mark.parametrize("source", [KERNEL, OF_TVM * 2 + KERNEL, OF_TVM.replace("cuda.h", "cuda_runtime.h") + KERNEL])
def test_the_source_of_another_tvm_is_refused(source: str) -> None:
    with pytest.raises(RuntimeError, match="TVM's CUDA source"):
        replace_prelude(source)


def test_a_source_without_functions_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no functions"):
        replace_prelude(OF_TVM)
