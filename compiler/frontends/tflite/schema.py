"""Declares the tables, unions and enumerations of TFLite's flatbuffer schema, version 3.

One line a table: its fields in the order of their slots, `name:type` or `name:type=default`. Types are scalars
(`i8` … `u64`, `f32`, `bool`), `str`, a table's name, `[type]` for a vector, and `union NAME`, which takes two slots.
`_` is a slot that is no longer used. The reader (`flatbuffer.py`) verifies and reads by these lines, and the tests
write files by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

__all__ = ["ACTIVATIONS", "BUILTIN_OPERATORS", "DTYPES", "TABLES", "UNIONS", "Field", "default_of", "fields_of"]

DTYPES = (
    *("float32", "float16", "int32", "uint8", "int64", "string", "bool", "int16", "complex64", "int8", "float64"),
    *("complex128", "uint64", "resource", "variant", "uint32", "uint16", "int4", "bfloat16", "int2", "uint4"),
    *("float8_e4m3fn", "float8_e5m2"),
)
"""Element types by their numbers."""

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")

TABLES: Mapping[str, str] = {
    "Model": "version:u32 operator_codes:[OperatorCode] subgraphs:[SubGraph] description:str buffers:[Buffer] "
    "metadata_buffer:[i32] metadata:[Metadata] signature_defs:[SignatureDef]",
    "OperatorCode": "deprecated_builtin_code:i8 custom_code:str version:i32=1 builtin_code:i32",
    "SubGraph": "tensors:[Tensor] inputs:[i32] outputs:[i32] operators:[Operator] name:str",
    "Buffer": "data:[u8] offset:u64 size:u64",
    "Metadata": "name:str buffer:u32",
    "SignatureDef": "inputs:[TensorMap] outputs:[TensorMap] signature_key:str _ subgraph_index:u32",
    "TensorMap": "name:str tensor_index:u32",
    "Tensor": "shape:[i32] type:i8 buffer:u32 name:str quantization:QuantizationParameters is_variable:bool "
    "sparsity:SparsityParameters shape_signature:[i32] has_rank:bool variant_tensors:[VariantSubType]",
    "VariantSubType": "shape:[i32] type:i8 has_rank:bool",
    "QuantizationParameters": "min:[f32] max:[f32] scale:[f32] zero_point:[i64] details:union QuantizationDetails "
    "quantized_dimension:i32",
    "CustomQuantization": "custom:[u8]",
    "BlockwiseQuantization": "scales:i32 zero_points:i32 block_size:i32",
    "SparsityParameters": "traversal_order:[i32] block_map:[i32] dim_metadata:[DimensionMetadata]",
    "DimensionMetadata": "format:i8 dense_size:i32 array_segments:union SparseIndexVector "
    "array_indices:union SparseIndexVector",
    "Int32Vector": "values:[i32]",
    "Uint16Vector": "values:[u16]",
    "Uint8Vector": "values:[u8]",
    "Operator": "opcode_index:u32 inputs:[i32] outputs:[i32] builtin_options:union BuiltinOptions custom_options:[u8] "
    "custom_options_format:i8 mutating_variable_inputs:[bool] intermediates:[i32] large_custom_options_offset:u64 "
    "large_custom_options_size:u64 builtin_options_2:union BuiltinOptions2",
    # Options of operators; tables without fields have no line.
    "Conv2DOptions": "padding:i8 stride_w:i32 stride_h:i32 fused_activation_function:i8 dilation_w_factor:i32=1 "
    "dilation_h_factor:i32=1 quantized_bias_type:i8",
    "Conv3DOptions": "padding:i8 stride_d:i32 stride_w:i32 stride_h:i32 fused_activation_function:i8 "
    "dilation_d_factor:i32=1 dilation_w_factor:i32=1 dilation_h_factor:i32=1",
    "Pool2DOptions": "padding:i8 stride_w:i32 stride_h:i32 filter_width:i32 filter_height:i32 "
    "fused_activation_function:i8",
    "DepthwiseConv2DOptions": "padding:i8 stride_w:i32 stride_h:i32 depth_multiplier:i32 fused_activation_function:i8 "
    "dilation_w_factor:i32=1 dilation_h_factor:i32=1",
    "ConcatEmbeddingsOptions": "num_channels:i32 num_columns_per_channel:[i32] embedding_dim_per_channel:[i32]",
    "LSHProjectionOptions": "type:i8",
    "SVDFOptions": "rank:i32 fused_activation_function:i8 asymmetric_quantize_inputs:bool",
    "RNNOptions": "fused_activation_function:i8 asymmetric_quantize_inputs:bool",
    "SequenceRNNOptions": "time_major:bool fused_activation_function:i8 asymmetric_quantize_inputs:bool",
    "BidirectionalSequenceRNNOptions": "time_major:bool fused_activation_function:i8 merge_outputs:bool "
    "asymmetric_quantize_inputs:bool",
    "FullyConnectedOptions": "fused_activation_function:i8 weights_format:i8 keep_num_dims:bool "
    "asymmetric_quantize_inputs:bool quantized_bias_type:i8",
    "SoftmaxOptions": "beta:f32",
    "ConcatenationOptions": "axis:i32 fused_activation_function:i8",
    "AddOptions": "fused_activation_function:i8 pot_scale_int16:bool=1",
    "MulOptions": "fused_activation_function:i8",
    "L2NormOptions": "fused_activation_function:i8",
    "LocalResponseNormalizationOptions": "radius:i32 bias:f32 alpha:f32 beta:f32",
    "LSTMOptions": "fused_activation_function:i8 cell_clip:f32 proj_clip:f32 kernel_type:i8 "
    "asymmetric_quantize_inputs:bool",
    "UnidirectionalSequenceLSTMOptions": "fused_activation_function:i8 cell_clip:f32 proj_clip:f32 time_major:bool "
    "asymmetric_quantize_inputs:bool diagonal_recurrent_tensors:bool",
    "BidirectionalSequenceLSTMOptions": "fused_activation_function:i8 cell_clip:f32 proj_clip:f32 merge_outputs:bool "
    "time_major:bool=1 asymmetric_quantize_inputs:bool",
    "ResizeBilinearOptions": "_ _ align_corners:bool half_pixel_centers:bool",
    "ResizeNearestNeighborOptions": "align_corners:bool half_pixel_centers:bool",
    "CallOptions": "subgraph:u32",
    "ReshapeOptions": "new_shape:[i32]",
    "SkipGramOptions": "ngram_size:i32 max_skip_size:i32 include_all_ngrams:bool",
    "SpaceToDepthOptions": "block_size:i32",
    "DepthToSpaceOptions": "block_size:i32",
    "SubOptions": "fused_activation_function:i8 pot_scale_int16:bool=1",
    "DivOptions": "fused_activation_function:i8",
    "EmbeddingLookupSparseOptions": "combiner:i8",
    "GatherOptions": "axis:i32 batch_dims:i32",
    "ReducerOptions": "keep_dims:bool",
    "SqueezeOptions": "squeeze_dims:[i32]",
    "SplitOptions": "num_splits:i32",
    "SplitVOptions": "num_splits:i32",
    "StridedSliceOptions": "begin_mask:i32 end_mask:i32 ellipsis_mask:i32 new_axis_mask:i32 shrink_axis_mask:i32 "
    "offset:bool",
    "CastOptions": "in_data_type:i8 out_data_type:i8",
    "ArgMaxOptions": "output_type:i8",
    "ArgMinOptions": "output_type:i8",
    "TransposeConvOptions": "padding:i8 stride_w:i32 stride_h:i32 fused_activation_function:i8 quantized_bias_type:i8",
    "SparseToDenseOptions": "validate_indices:bool",
    "ShapeOptions": "out_type:i8",
    "FakeQuantOptions": "min:f32 max:f32 num_bits:i32 narrow_range:bool",
    "PackOptions": "values_count:i32 axis:i32",
    "OneHotOptions": "axis:i32",
    "UnpackOptions": "num:i32 axis:i32",
    "LeakyReluOptions": "alpha:f32",
    "MirrorPadOptions": "mode:i8",
    "UniqueOptions": "idx_out_type:i8=2",
    "ReverseSequenceOptions": "seq_dim:i32 batch_dim:i32",
    "IfOptions": "then_subgraph_index:i32 else_subgraph_index:i32",
    "CallOnceOptions": "init_subgraph_index:i32",
    "WhileOptions": "cond_subgraph_index:i32 body_subgraph_index:i32",
    "BatchMatMulOptions": "adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool",
    "CumsumOptions": "exclusive:bool reverse:bool",
    "HashtableOptions": "table_id:i32 key_dtype:i8 value_dtype:i8",
    "VarHandleOptions": "container:str shared_name:str",
    "RandomOptions": "seed:i64 seed2:i64",
    "BucketizeOptions": "boundaries:[f32]",
    "GeluOptions": "approximate:bool",
    "StablehloConcatenateOptions": "dimension:i64",
    "StablehloBroadcastInDimOptions": "broadcast_dimensions:[i64]",
    "StablehloSliceOptions": "start_indices:[i64] limit_indices:[i64] strides:[i64]",
    "StablehloConvolutionOptions": "window_strides:[i64] padding:[i64] lhs_dilation:[i64] rhs_dilation:[i64] "
    "window_reversal:[bool] input_batch_dimension:i64 input_feature_dimension:i64 input_spatial_dimensions:[i64] "
    "kernel_input_feature_dimension:i64 kernel_output_feature_dimension:i64 kernel_spatial_dimensions:[i64] "
    "output_batch_dimension:i64 output_feature_dimension:i64 output_spatial_dimensions:[i64] feature_group_count:i64 "
    "batch_group_count:i64 precision_config:[u32]",
    "StablehloReduceOptions": "dimensions:[i64] body_subgraph_index:i32",
    "StablehloCompareOptions": "comparison_direction:u32 compare_type:u32",
    "StablehloDynamicSliceOptions": "slice_sizes:[i64]",
    "StablehloIotaOptions": "iota_dimension:i64",
    "StablehloDotGeneralOptions": "lhs_batching_dimensions:[i64] rhs_batching_dimensions:[i64] "
    "lhs_contracting_dimensions:[i64] rhs_contracting_dimensions:[i64] precision_config:[u32]",
    "StablehloSortOptions": "dimension:i64 is_stable:bool comparator_subgraph_index:i32",
    "StablehloTransposeOptions": "permutation:[i64]",
    "StablehloScatterOptions": "indices_are_sorted:bool update_window_dims:[i64] inserted_window_dims:[i64] "
    "scatter_dims_to_operand_dims:[i64] index_vector_dim:i64 unique_indices:bool update_computation_subgraph_index:i32",
    "StablehloPadOptions": "edge_padding_low:[i64] edge_padding_high:[i64] interior_padding:[i64]",
    "StablehloReduceWindowOptions": "window_dimensions:[i64] window_strides:[i64] base_dilations:[i64] "
    "window_dilations:[i64] padding:[i64] body_subgraph_index:i32",
    "StablehloGatherOptions": "offset_dims:[i64] collapsed_slice_dims:[i64] start_index_map:[i64] index_vector_dim:i64 "
    "slice_sizes:[i64] indices_are_sorted:bool",
    "StablehloWhileOptions": "cond_subgraph_index:i32 body_subgraph_index:i32",
    "ReduceWindowOptions": "reduce_function:i32",
    "StablehloCaseOptions": "branch_subgraph_indices:[i32]",
    "StableHLOCompositeOptions": "name:str decomposition_subgraph_index:i32 composite_attributes:[u8] "
    "composite_attributes_format:i8 version:i32",
}


def _options(names: str) -> tuple[str, ...]:
    return tuple(f"{name}Options" for name in names.split())


UNIONS: Mapping[str, tuple[str, ...]] = {
    "QuantizationDetails": ("CustomQuantization", "BlockwiseQuantization"),
    "SparseIndexVector": ("Int32Vector", "Uint16Vector", "Uint8Vector"),
    "BuiltinOptions": _options(
        "Conv2D DepthwiseConv2D ConcatEmbeddings LSHProjection Pool2D SVDF RNN FullyConnected Softmax Concatenation "
        "Add L2Norm LocalResponseNormalization LSTM ResizeBilinear Call Reshape SkipGram SpaceToDepth "
        "EmbeddingLookupSparse Mul Pad Gather BatchToSpaceND SpaceToBatchND Transpose Reducer Sub Div Squeeze "
        "SequenceRNN StridedSlice Exp TopKV2 Split LogSoftmax Cast Dequantize MaximumMinimum ArgMax Less Neg PadV2 "
        "Greater GreaterEqual LessEqual Select Slice TransposeConv SparseToDense Tile ExpandDims Equal NotEqual Shape "
        "Pow ArgMin FakeQuant Pack LogicalOr OneHot LogicalAnd LogicalNot Unpack FloorDiv Square ZerosLike Fill "
        "BidirectionalSequenceLSTM BidirectionalSequenceRNN UnidirectionalSequenceLSTM FloorMod Range "
        "ResizeNearestNeighbor LeakyRelu SquaredDifference MirrorPad Abs SplitV Unique ReverseV2 AddN GatherNd Cos "
        "Where Rank ReverseSequence MatrixDiag Quantize MatrixSetDiag HardSwish If While DepthToSpace "
        "NonMaxSuppressionV4 NonMaxSuppressionV5 ScatterNd SelectV2 Densify SegmentSum BatchMatMul Cumsum CallOnce "
        "BroadcastTo Rfft2d Conv3D Hashtable HashtableFind HashtableImport HashtableSize VarHandle ReadVariable "
        "AssignVariable Random Bucketize Gelu DynamicUpdateSlice UnsortedSegmentProd UnsortedSegmentMax "
        "UnsortedSegmentMin UnsortedSegmentSum ATan2 Sign Bitcast BitwiseXor RightShift"
    ),
    "BuiltinOptions2": (
        *(f"Stablehlo{name}" for name in _options(
            "Concatenate BroadcastInDim Slice Convolution CustomCall Reduce Scatter Compare DynamicSlice Pad Iota "
            "DotGeneral ReduceWindow Sort While Gather Transpose"
        )),
        *("DilateOptions", "StablehloRngBitGeneratorOptions", "ReduceWindowOptions", "StableHLOCompositeOptions"),
        *("StablehloShiftLeftOptions", "StablehloCaseOptions"),
    ),
}  # fmt: skip
"""The tables that a union may be, by its type from 1 on."""

_NAMES = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
    FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC
    LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH
    SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER
    BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
    BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM
    ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE
    TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK
    LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL
    FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL
    REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND
    HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM
    BATCH_MATMUL LONG_NUMBER CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS
    HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE
    ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU
    DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
    UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE
    STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
    STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE
    STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG
    STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT
    STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT
    STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL
    STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE
    STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
"""
BUILTIN_OPERATORS: tuple[str, ...] = tuple(_NAMES.split())
"""The names of operators by their numbers."""


@dataclass(frozen=True)
class Field:
    """A field of a table.

    Attributes:
        slot: its index in the vtable; of a union that of its type, the value is in the next one.
        kind: "scalar", "string", "table", "vector" or "union".
        of: the scalar's type, the table, the vector's element type, or the union.
        default: of a scalar.
    """

    name: str
    slot: int
    kind: str
    of: str
    default: float


@cache
def fields_of(table: str) -> tuple[Field, ...]:
    """The fields of a table by its line; none where there is no line."""
    found, slot = [], 0
    for part in TABLES.get(table, "").replace("union ", "union").split():
        if part == "_":
            slot += 1
            continue
        name, _, type_ = part.partition(":")
        type_, _, default = type_.partition("=")
        kind, of = _kind(type_)
        found.append(Field(name, slot, kind, of, float(default or 0) if of == "f32" else int(default or 0)))
        slot += 2 if kind == "union" else 1
    return tuple(found)


@cache
def default_of(name: str) -> Any:
    """Return the default of an option's field: a number, an empty string or vector; None for others."""
    for table in (*UNIONS["BuiltinOptions"], *UNIONS["BuiltinOptions2"]):
        for field in fields_of(table):
            if field.name == name:
                return {"scalar": field.default, "string": "", "vector": ()}.get(field.kind)
    return None


def _kind(type_: str) -> tuple[str, str]:
    if type_.startswith("union"):
        return "union", type_.removeprefix("union")
    if type_.startswith("["):
        return "vector", type_[1:-1]
    if type_ == "str":
        return "string", type_
    return ("table", type_) if type_ in TABLES else ("scalar", type_)
