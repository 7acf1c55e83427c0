"""Lists the operators of PNNX by family, a module each; an operator that is not listed here is not found."""

from collections.abc import Mapping

__all__ = ["MODULES"]

MODULES: Mapping[str, str] = {
    "activation": (
        "F.celu F.elu F.gelu F.glu F.hardshrink F.hardsigmoid F.hardswish F.hardtanh F.leaky_relu F.logsigmoid "
        "F.mish F.prelu F.relu F.relu6 F.rrelu F.selu F.sigmoid F.silu F.softplus F.softshrink F.softsign "
        "F.tanh F.tanhshrink F.threshold nn.CELU nn.ELU nn.GELU nn.GLU nn.Hardshrink nn.Hardsigmoid "
        "nn.Hardswish nn.Hardtanh nn.LeakyReLU nn.LogSigmoid nn.Mish nn.PReLU nn.ReLU nn.ReLU6 nn.RReLU nn.SELU "
        "nn.Sigmoid nn.SiLU nn.Softplus nn.Softshrink nn.Softsign nn.Tanh nn.Tanhshrink nn.Threshold "
        "Tensor.sigmoid Tensor.tanh torch.hardshrink torch.prelu"
    ),
    "attention": "F.scaled_dot_product_attention nn.MultiheadAttention",
    "convolution": (
        "F.conv1d F.conv2d F.conv3d F.conv_transpose1d F.conv_transpose2d F.conv_transpose3d nn.Conv1d "
        "nn.Conv2d nn.Conv3d nn.ConvTranspose1d nn.ConvTranspose2d nn.ConvTranspose3d"
    ),
    "creation": (
        "Tensor.fill Tensor.new_empty Tensor.new_full Tensor.new_ones Tensor.new_zeros torch.arange torch.empty "
        "torch.empty_like torch.eye torch.full torch.full_like torch.linspace torch.ones torch.ones_like "
        "torch.zeros torch.zeros_like"
    ),
    "elementwise": (
        "Tensor.clamp Tensor.clamp_max Tensor.clamp_min Tensor.pow Tensor.relu torch.abs torch.absolute "
        "torch.acos torch.acosh torch.add torch.addcdiv torch.addcmul torch.arctan2 torch.asin torch.asinh "
        "torch.atan torch.atan2 torch.atanh torch.bitwise_and torch.bitwise_left_shift torch.bitwise_not "
        "torch.bitwise_or torch.bitwise_right_shift torch.bitwise_xor torch.ceil torch.clamp torch.clamp_max "
        "torch.clamp_min torch.clip torch.cos torch.cosh torch.div torch.divide torch.eq torch.erf torch.exp "
        "torch.exp2 torch.expm1 torch.floor torch.floor_divide torch.fmod torch.frac torch.ge torch.greater "
        "torch.greater_equal torch.gt torch.isfinite torch.isinf torch.isnan torch.le torch.lerp torch.less "
        "torch.less_equal torch.log torch.log10 torch.log1p torch.log2 torch.logaddexp torch.logical_and "
        "torch.logical_not torch.logical_or torch.logical_xor torch.lshift torch.lt torch.maximum torch.minimum "
        "torch.mul torch.multiply torch.ne torch.neg torch.negative torch.not_equal torch.pow torch.reciprocal "
        "torch.relu torch.remainder torch.round torch.rshift torch.rsqrt torch.rsub torch.sigmoid torch.sign "
        "torch.sin torch.sinh torch.sqrt torch.square torch.sub torch.tan torch.tanh torch.trunc"
    ),
    "embedding": "F.embedding F.one_hot nn.Embedding",
    "folding": "F.fold F.unfold nn.Fold nn.Unfold",
    "identity": (
        "F.alpha_dropout F.dropout F.dropout1d F.dropout2d F.dropout3d F.feature_alpha_dropout nn.AlphaDropout "
        "nn.Dropout nn.Dropout1d nn.Dropout2d nn.Dropout3d nn.FeatureAlphaDropout nn.Identity Tensor.bool "
        "Tensor.clone Tensor.contiguous Tensor.detach Tensor.double Tensor.float Tensor.half Tensor.int "
        "Tensor.long Tensor.short Tensor.to Tensor.type Tensor.type_as torch.clone torch.detach"
    ),
    "indexing": (
        "Tensor.index Tensor.masked_fill Tensor.narrow Tensor.select Tensor.slice Tensor.tril Tensor.triu "
        "torch.argsort torch.diag torch.gather torch.index_select torch.masked_fill torch.narrow torch.select "
        "torch.sort torch.topk torch.tril torch.triu torch.where"
    ),
    "matrix": (
        "F.linear nn.Linear Tensor.matmul torch.addmm torch.addmv torch.baddbmm torch.bmm torch.dot "
        "torch.einsum torch.matmul torch.mm torch.mv torch.outer"
    ),
    "normalization": (
        "F.batch_norm F.group_norm F.instance_norm F.layer_norm F.local_response_norm F.normalize F.rms_norm "
        "nn.BatchNorm1d nn.BatchNorm2d nn.BatchNorm3d nn.GroupNorm nn.InstanceNorm1d nn.InstanceNorm2d "
        "nn.InstanceNorm3d nn.LayerNorm nn.LocalResponseNorm nn.RMSNorm torch.group_norm"
    ),
    "padding": (
        "F.pad nn.CircularPad1d nn.CircularPad2d nn.CircularPad3d nn.ConstantPad1d nn.ConstantPad2d "
        "nn.ConstantPad3d nn.ReflectionPad1d nn.ReflectionPad2d nn.ReflectionPad3d nn.ReplicationPad1d "
        "nn.ReplicationPad2d nn.ReplicationPad3d nn.ZeroPad1d nn.ZeroPad2d nn.ZeroPad3d"
    ),
    "pooling": (
        "F.adaptive_avg_pool1d F.adaptive_avg_pool2d F.adaptive_avg_pool3d F.adaptive_max_pool1d "
        "F.adaptive_max_pool2d F.adaptive_max_pool3d F.avg_pool1d F.avg_pool2d F.avg_pool3d F.lp_pool1d "
        "F.lp_pool2d F.lp_pool3d F.max_pool1d F.max_pool2d F.max_pool3d nn.AdaptiveAvgPool1d "
        "nn.AdaptiveAvgPool2d nn.AdaptiveAvgPool3d nn.AdaptiveMaxPool1d nn.AdaptiveMaxPool2d "
        "nn.AdaptiveMaxPool3d nn.AvgPool1d nn.AvgPool2d nn.AvgPool3d nn.LPPool1d nn.LPPool2d nn.LPPool3d "
        "nn.MaxPool1d nn.MaxPool2d nn.MaxPool3d"
    ),
    "recurrent": "nn.GRU nn.LSTM nn.RNN",
    "reduction": (
        "Tensor.all Tensor.amax Tensor.amin Tensor.any Tensor.argmax Tensor.argmin Tensor.cumprod Tensor.cumsum "
        "Tensor.mean Tensor.norm Tensor.prod Tensor.std Tensor.sum Tensor.var torch.all torch.amax torch.amin "
        "torch.any torch.argmax torch.argmin torch.cumprod torch.cumsum torch.logsumexp torch.max torch.mean "
        "torch.min torch.norm torch.prod torch.std torch.sum torch.var"
    ),
    "resize": (
        "F.interpolate F.upsample F.upsample_bilinear F.upsample_nearest nn.Upsample nn.UpsamplingBilinear2d "
        "nn.UpsamplingNearest2d"
    ),
    "sampling": "F.affine_grid F.grid_sample",
    "scattering": (
        "Tensor.copy Tensor.index_put Tensor.slice_copy torch.scatter torch.scatter_add torch.select_scatter "
        "torch.slice_scatter"
    ),
    "shape": (
        "F.channel_shuffle F.pixel_shuffle F.pixel_unshuffle nn.ChannelShuffle nn.Flatten nn.PixelShuffle "
        "nn.PixelUnshuffle nn.Unflatten Tensor.chunk Tensor.expand Tensor.expand_as Tensor.flip Tensor.permute "
        "Tensor.repeat Tensor.reshape Tensor.reshape_as Tensor.roll Tensor.size Tensor.split Tensor.squeeze "
        "Tensor.t Tensor.transpose Tensor.unbind Tensor.unflatten Tensor.unsqueeze Tensor.view Tensor.view_as "
        "torch.broadcast_to torch.cat torch.channel_shuffle torch.chunk torch.concat torch.flatten torch.flip "
        "torch.movedim torch.permute torch.pixel_shuffle torch.pixel_unshuffle torch.repeat_interleave "
        "torch.reshape torch.roll torch.split torch.squeeze torch.stack torch.t torch.tensor_split torch.tile "
        "torch.transpose torch.unbind torch.unflatten torch.unsqueeze"
    ),
    "softmax": (
        "F.log_softmax F.softmax F.softmin nn.LogSoftmax nn.Softmax nn.Softmax2d nn.Softmin Tensor.softmax "
        "torch.log_softmax torch.softmax"
    ),
    "vectors": "F.cosine_similarity F.pairwise_distance nn.CosineSimilarity torch.cross torch.linalg_cross",
}
"""Names of operators by module of this package."""
