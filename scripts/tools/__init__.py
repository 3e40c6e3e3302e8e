"""Tools of the developers: releases, kernels, killed trainings, short notebooks."""
