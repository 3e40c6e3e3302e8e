"""Traced JAX functions with replaceable constants."""

import re

import numpy as np


class TracedStep:
    """A function that is traced once and can be called with other constants.

    Whatever Python knew during tracing is a constant of the program: a dropout rate,
    the weight of a penalty, the end of a ramp. Two models whose steps have the same
    `signature` differ only in their `constants`, so that one program can run both.
    """

    def __init__(self, function, *arguments):
        import jax  # pyright: ignore[reportMissingImports]

        program, outputs = jax.make_jaxpr(function, return_shape=True)(*arguments)
        self.constants = []
        self._equations = []
        self._structure = jax.tree.structure(outputs)
        self._size = len(program.jaxpr.invars)
        self._outputs = self._inline(program, range(self._size))
        self.signature = self._describe()

    def __call__(self, constants, *arguments):
        """Call the function with other constants."""
        import jax  # pyright: ignore[reportMissingImports]

        # Indices count up from 0 for computed values, and down from -1 for constants.
        values = dict(enumerate(jax.tree.leaves(arguments)))
        values.update((~i, constant) for i, constant in enumerate(constants))
        for equation, inputs, outputs in self._equations:
            primitive = equation.primitive
            params = primitive.get_bind_params(equation.params)
            # Before JAX 0.10, functions among the parameters were returned separately.
            functions, params = params if isinstance(params, tuple) else ((), params)
            found = primitive.bind(*functions, *(values[i] for i in inputs), **params)
            several = primitive.multiple_results
            values.update(zip(outputs, found if several else [found], strict=True))
        return jax.tree.unflatten(self._structure, [values[i] for i in self._outputs])

    def _describe(self):
        """The equations of the program without its constants, as a list of texts."""
        lines = []
        for equation, inputs, outputs in self._equations:
            types = [str(atom.aval) for atom in equation.invars]
            line = f"{equation.primitive} {types} {inputs} {outputs} {equation.params}"
            lines.append(re.sub("0x[0-9a-f]+", "", line))
        return [*lines, f"{self._outputs} {self._structure}"]

    def _inline(self, program, inputs):
        """Append the equations of a program, and return the indices of its outputs."""
        from jax.extend.core import Literal  # pyright: ignore[reportMissingImports]

        jaxpr = program.jaxpr
        indices = dict(zip(jaxpr.invars, inputs, strict=True))
        for variable, value in zip(jaxpr.constvars, program.consts, strict=True):
            indices[variable] = self._add_constant(value, variable)

        def index(atom):
            if isinstance(atom, Literal):
                return self._add_constant(atom.val, atom)
            return indices[atom]

        for equation in jaxpr.eqns:
            values = [index(atom) for atom in equation.invars]
            if equation.primitive.name in {"jit", "pjit"}:
                outputs = self._inline(equation.params["jaxpr"], values)
            else:
                begin, self._size = self._size, self._size + len(equation.outvars)
                outputs = list(range(begin, self._size))
                self._equations.append((equation, values, outputs))
            indices.update(zip(equation.outvars, outputs, strict=True))
        return [index(atom) for atom in jaxpr.outvars]

    def _add_constant(self, value, atom):
        self.constants.append(np.asarray(value, atom.aval.dtype))
        return -len(self.constants)
