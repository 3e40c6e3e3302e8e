"""Equations as pure functions of tensors, computed in float32 on any backend."""

from dselectk_keras.ops.binary_codes import binary_codes
from dselectk_keras.ops.choose_by_fit import choose_by_fit
from dselectk_keras.ops.coefficient_of_variation import coefficient_of_variation
from dselectk_keras.ops.entropy import entropy
from dselectk_keras.ops.first_largest import first_largest
from dselectk_keras.ops.gumbel_noise import gumbel_noise
from dselectk_keras.ops.keep_largest import keep_largest
from dselectk_keras.ops.keep_top_k import keep_top_k
from dselectk_keras.ops.mix import mix
from dselectk_keras.ops.relaxed_bernoulli import relaxed_bernoulli
from dselectk_keras.ops.selector_product import selector_product
from dselectk_keras.ops.smooth_step import smooth_step
from dselectk_keras.ops.softmax import softmax
from dselectk_keras.ops.top_k_probability import top_k_probability
from dselectk_keras.ops.unstack import unstack

__all__ = [
    "binary_codes",
    "choose_by_fit",
    "coefficient_of_variation",
    "entropy",
    "first_largest",
    "gumbel_noise",
    "keep_largest",
    "keep_top_k",
    "mix",
    "relaxed_bernoulli",
    "selector_product",
    "smooth_step",
    "softmax",
    "top_k_probability",
    "unstack",
]
