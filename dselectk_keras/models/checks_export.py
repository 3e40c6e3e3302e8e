"""Export of models, with an error where a format cannot hold them."""

import pathlib
import re
import tempfile
from typing import Any

import keras

from dselectk_keras.utils import optional_import

# The first version of ONNX that has the operations of all gates.
OPSET = 18


class ChecksExport:
    """A functional model that is exported right, or with an error and without a file.

    Keras itself writes ONNX files with operations that ONNX lacks, and LiteRT files
    that need all of TensorFlow, and reports success.
    """

    input: Any

    def export(
        self,
        filepath: Any,
        format: str = "tf_saved_model",  # noqa: A002 (the name in Keras)
        verbose: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Export the model for serving, as `keras.Model.export`.

        If the format lacks an operation of the model, this is a `ValueError`, and no
        file is written.

        Args:
            filepath: The path of the file, or of the folder of a SavedModel.
            format: `"tf_saved_model"`, `"onnx"`, `"litert"` or another one of Keras.
            verbose: Whether to print the path.
            **kwargs: Options of the format. On TensorFlow, `opset_version` of ONNX is
                18 by default, and `target_spec` of LiteRT is LiteRT's own operations.
        """
        export: Any = super()
        if format not in {"onnx", "litert"}:
            export.export(filepath, format, verbose, **kwargs)
            return
        if format == "onnx":
            _check_onnx(self.input)
        # Without it, Keras would ask for a call of the model before its export.
        kwargs.setdefault("input_signature", [self.input])
        if keras.backend.backend() == "tensorflow" and format == "onnx":
            kwargs.setdefault("opset_version", OPSET)
        elif keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            builtins = {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]}
            kwargs.setdefault("target_spec", builtins)
        target = pathlib.Path(filepath)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            path = pathlib.Path(folder) / target.name
            try:
                export.export(str(path), format, False, **kwargs)
                if format == "onnx":
                    _onnx().checker.check_model(str(path))
            except Exception as error:
                if type(error).__name__ not in {"ConverterError", "ValidationError"}:
                    raise
                raise ValueError(_explained(format, str(error))) from error
            # Large weights are in further files beside the model's.
            for file in path.parent.iterdir():
                file.replace(target.parent / file.name)
        if verbose or verbose is None:
            print(f"Saved artifact at '{filepath}'.")  # noqa: T201


def _onnx():
    """Import `onnx`, or name the extra that has it and the converter."""
    converter = () if keras.backend.backend() == "torch" else ("tf2onnx",)
    return optional_import("onnx", *converter, extra="export", purpose="Export to ONNX")


def _check_onnx(inputs):
    """Raise an error if a model cannot be in ONNX, before it is converted."""
    strings = [x.name for x in keras.tree.flatten(inputs) if x.dtype == "string"]
    if strings:
        raise ValueError(
            "ONNX has no look-up of strings, and no file was written. Received: string "
            f"inputs {', '.join(strings)}, which a layer such as `StringLookup` reads. "
            "Look the strings up before the model and give it integers, or use "
            'format="tf_saved_model".'
        )
    _onnx()


def _explained(format_, text):
    """Say which operations a format lacks, from an error of its converter."""
    found = re.findall(r"OpType: (\w+)|'tf\.(\w+)' op", text)
    lacks = sorted({one or other for one, other in found})
    name = {"onnx": "ONNX", "litert": "LiteRT"}[format_]
    hint = ""
    if {"Bitcast", "BitwiseXor", "FloorDiv"} & set(lacks):
        hint = (
            " A `HashGate` needs integer ids: in ONNX with opset_version=18 or later, "
            "in LiteRT of 32 bits. Use such ids or another gate."
        )
    return (
        f"{name} lacks operations of this model, and no file was written. Received: "
        f'{", ".join(lacks) or text}.{hint} format="tf_saved_model" holds all.'
    )
