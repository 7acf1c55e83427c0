"""Lists the operators of ONNX by the modules that lower them; an operator that is not listed here is not found.

The name of an operator of another domain than ai.onnx begins with the domain.
"""

from collections.abc import Mapping

__all__ = ["MODULES"]

MODULES: Mapping[str, str] = {
    "gradient": "ai.onnx.preview.training::Gradient",
    "control.control_flow": "If Loop Scan",
    "operators.activation": (
        "Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Shrink Softplus Softsign Swish "
        "ThresholdedRelu"
    ),
    "operators.attention": "Attention ai.onnx.preview::FlexAttention",
    "operators.casting": "BitCast Cast CastLike",
    "operators.convolution": "Conv ConvTranspose DeformConv",
    "operators.detection": "AffineGrid GridSample MaxRoiPool NonMaxSuppression RoiAlign com.microsoft::GridSample",
    "operators.elementwise": (
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor "
        "Ceil Clip Cos Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Log "
        "Max Mean Min Mod Mul Neg Not Or Pow Reciprocal Round Sigmoid Sign Sin Sinh Sqrt Sub Sum Tan Tanh "
        "Where Xor"
    ),
    "operators.images": "ImageDecoder",
    "operators.indexing": (
        "Gather GatherElements GatherND OneHot ReverseSequence Scatter ScatterElements ScatterND "
        "TensorScatter TopK com.microsoft::GatherND"
    ),
    "operators.matrix": "Det Einsum Gemm MatMul Trilu com.microsoft::Trilu",
    "operators.normalization": (
        "BatchNormalization Dropout GroupNormalization InstanceNormalization LRN LayerNormalization "
        "LpNormalization MeanVarianceNormalization RMSNormalization"
    ),
    "operators.optimizers": (
        "ai.onnx.preview.training::Adagrad ai.onnx.preview.training::Adam ai.onnx.preview.training::Momentum"
    ),
    "operators.pooling": "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool",
    "operators.quantization": (
        "ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul "
        "QuantizeLinear com.microsoft::DequantizeLinear com.microsoft::QLinearConv "
        "com.microsoft::QuantizeLinear"
    ),
    "operators.random": "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    "operators.recurrent": "GRU LSTM RNN com.microsoft::DynamicQuantizeLSTM",
    "operators.reduction": (
        "ArgMax ArgMin CumProd CumSum Hardmax LogSoftmax ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
        "ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Softmax"
    ),
    "operators.resize": "Resize Upsample",
    "operators.selection": "Compress NonZero Unique",
    "operators.sequence": (
        "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct "
        "SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence"
    ),
    "operators.shape": (
        "CenterCropPad Concat Constant ConstantOfShape DepthToSpace Expand EyeLike Flatten Identity Pad Range "
        "Reshape Shape Size Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze com.microsoft::Range"
    ),
    "operators.signal": "DFT MelWeightMatrix STFT",
    "operators.text": (
        "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer com.microsoft::Tokenizer"
    ),
    "operators.unpooling": "Col2Im MaxUnpool",
    "operators.microsoft.block_quantized": (
        "com.microsoft::GatherBlockQuantized com.microsoft::MatMulBnb4 com.microsoft::MatMulNBits"
    ),
    "operators.microsoft.contributed": (
        "Affine Crop ImageScaler ParametricSoftplus ScaledTanh com.microsoft::CDist com.microsoft::ComplexMul "
        "com.microsoft::ComplexMulConj com.microsoft::CropAndResize com.microsoft::ExpandDims "
        "com.microsoft::Inverse com.microsoft::Irfft com.microsoft::MoE com.microsoft::MurmurHash3 "
        "com.microsoft::NGramRepeatBlock com.microsoft::Pad com.microsoft::Rfft com.microsoft::Unique"
    ),
    "operators.microsoft.fused_attention": (
        "com.microsoft::Attention com.microsoft::DecoderMaskedMultiHeadAttention "
        "com.microsoft::GroupQueryAttention com.microsoft::MultiHeadAttention com.microsoft::QAttention "
        "com.microsoft::RotaryEmbedding"
    ),
    "operators.microsoft.fused_normalization": (
        "SimplifiedLayerNormalization com.microsoft::EmbedLayerNormalization com.microsoft::GroupNorm "
        "com.microsoft::QEmbedLayerNormalization com.microsoft::SkipGroupNorm "
        "com.microsoft::SkipLayerNormalization com.microsoft::SkipSimplifiedLayerNormalization"
    ),
    "operators.microsoft.fused_operators": (
        "com.microsoft::BiasAdd com.microsoft::BiasDropout com.microsoft::BiasGelu com.microsoft::BiasSoftmax "
        "com.microsoft::BiasSplitGelu com.microsoft::FastGelu com.microsoft::FusedConv "
        "com.microsoft::FusedGemm com.microsoft::FusedMatMul com.microsoft::FusedMatMulActivation "
        "com.microsoft::Gelu com.microsoft::GemmFastGelu com.microsoft::NhwcConv com.microsoft::NhwcFusedConv "
        "com.microsoft::QuickGelu com.microsoft::TransposeMatMul"
    ),
    "operators.microsoft.packed_attention": ("com.microsoft::PackedAttention com.microsoft::PackedMultiHeadAttention"),
    "operators.microsoft.quantized_operators": (
        "com.microsoft::DynamicQuantizeMatMul com.microsoft::MatMulInteger16 "
        "com.microsoft::MatMulIntegerToFloat com.microsoft::MulInteger com.microsoft::NhwcMaxPool "
        "com.microsoft::QGemm com.microsoft::QLinearAdd com.microsoft::QLinearAveragePool "
        "com.microsoft::QLinearConcat com.microsoft::QLinearGlobalAveragePool com.microsoft::QLinearLeakyRelu "
        "com.microsoft::QLinearMul com.microsoft::QLinearReduceMean com.microsoft::QLinearSigmoid "
        "com.microsoft::QLinearSoftmax com.microsoft::QLinearWhere com.microsoft::ReduceSumInteger"
    ),
    "operators.ml.classifiers": (
        "ai.onnx.ml::LinearClassifier ai.onnx.ml::LinearRegressor ai.onnx.ml::SVMClassifier ai.onnx.ml::SVMRegressor"
    ),
    "operators.ml.features": (
        "ai.onnx.ml::ArrayFeatureExtractor ai.onnx.ml::Binarizer ai.onnx.ml::CastMap "
        "ai.onnx.ml::DictVectorizer ai.onnx.ml::FeatureVectorizer ai.onnx.ml::Imputer ai.onnx.ml::Normalizer "
        "ai.onnx.ml::OneHotEncoder ai.onnx.ml::Scaler ai.onnx.ml::ZipMap"
    ),
    "operators.ml.labels": "ai.onnx.ml::CategoryMapper ai.onnx.ml::LabelEncoder",
    "operators.ml.trees": (
        "ai.onnx.ml::TreeEnsemble ai.onnx.ml::TreeEnsembleClassifier ai.onnx.ml::TreeEnsembleRegressor"
    ),
}
"""Names of operators by module of the front end."""
