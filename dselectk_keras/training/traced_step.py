"""Steps that JAX has traced, whose numbers can be exchanged."""

import re

import numpy as np


class TracedStep:
    """A function that is traced once, and whose numbers may be others at each call.

    Whatever Python knew while tracing stands in the program as a number: a dropout
    rate, a penalty's weight, the end of a ramp. Two models whose steps have the same
    `form` differ in their `numbers` only, so that one program can run both.

    Args:
        function: A function of arrays, in nested structures.
        *arguments: Arrays, or their shapes and dtypes, to trace it with.
    """

    def __init__(self, function, *arguments):
        import jax  # pyright: ignore[reportMissingImports]

        program, outputs = jax.make_jaxpr(function, return_shape=True)(*arguments)
        self.numbers = []
        self._equations = []
        self._structure = jax.tree.structure(outputs)
        self._size = len(program.jaxpr.invars)
        self._outputs = self._inline(program, range(self._size))

    def __call__(self, numbers, *arguments):
        """What the function gives, with other numbers in it.

        Args:
            numbers: A list in the form of `numbers`.
            *arguments: The arguments of the function.
        """
        import jax  # pyright: ignore[reportMissingImports]

        # Places count up for what is computed, and down from -1 for the numbers.
        values = dict(enumerate(jax.tree.leaves(arguments)))
        values.update((~place, number) for place, number in enumerate(numbers))
        for equation, inputs, outputs in self._equations:
            primitive = equation.primitive
            params = primitive.get_bind_params(equation.params)
            # Until JAX 0.10, functions among the parameters came apart.
            functions, params = params if isinstance(params, tuple) else ((), params)
            found = primitive.bind(*functions, *(values[i] for i in inputs), **params)
            several = primitive.multiple_results
            values.update(zip(outputs, found if several else [found], strict=True))
        return jax.tree.unflatten(self._structure, [values[i] for i in self._outputs])

    @property
    def form(self):
        """The program without its numbers: a list of its equations, as texts."""
        lines = []
        for equation, inputs, outputs in self._equations:
            types = [str(atom.aval) for atom in equation.invars]
            line = f"{equation.primitive} {types} {inputs} {outputs} {equation.params}"
            lines.append(re.sub("0x[0-9a-f]+", "", line))
        return [*lines, f"{self._outputs} {self._structure}"]

    def _inline(self, program, inputs):
        """Take over the equations of a program; the places of its outputs."""
        from jax.extend.core import Literal  # pyright: ignore[reportMissingImports]

        jaxpr = program.jaxpr
        places = dict(zip(jaxpr.invars, inputs, strict=True))
        for variable, value in zip(jaxpr.constvars, program.consts, strict=True):
            places[variable] = self._place_of(value, variable)

        def place(atom):
            if isinstance(atom, Literal):
                return self._place_of(atom.val, atom)
            return places[atom]

        for equation in jaxpr.eqns:
            values = [place(atom) for atom in equation.invars]
            if equation.primitive.name in {"jit", "pjit"}:
                outputs = self._inline(equation.params["jaxpr"], values)
            else:
                begin, self._size = self._size, self._size + len(equation.outvars)
                outputs = list(range(begin, self._size))
                self._equations.append((equation, values, outputs))
            places.update(zip(equation.outvars, outputs, strict=True))
        return [place(atom) for atom in jaxpr.outvars]

    def _place_of(self, number, atom):
        self.numbers.append(np.asarray(number, atom.aval.dtype))
        return -len(self.numbers)
