"""What the columns of a table hold, found in the rows to train on."""

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from dselectk_keras.models.columns import LISTS, inferred
from dselectk_keras.utils import optional_import, shown

# A column of strings with more values than this part of its rows tells rows apart.
MOST_VALUES, FEW_ROWS = 0.9, 10
# The largest number of float32.
LARGEST = float(np.finfo("float32").max)
DATE = re.compile(
    r"(\d{4}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3(\d\d){1,2})([T ]\d.*)?"
)
# Where the day comes first, or the month.
DAY_OR_MONTH = r"^(\d\d?)[./-](\d\d?)[./-]"
ROW_NUMBERS = re.compile(r"(unnamed: \d+|index|(row_?)?id)", re.IGNORECASE)
ID = re.compile(r"(.*[_\s.-])?id|.*[a-z]I[dD]", re.ASCII)
DATES = "date", "day-first date"
LEFT_OUT = "constant", "id"


def import_pandas() -> Any:
    """Import pandas, or raise an error that names the extra to install."""
    return optional_import("pandas", extra="tables", purpose="a table")


def column_kinds(frame: Any, hashed: Collection[str] = ()) -> dict[str, str]:
    """Find what each column of a table holds, from the rows to train on.

    - `"number"`: numbers, also those of `decimal`, and durations, in seconds.
    - `"boolean"`: true and false, which are the numbers 1 and 0.
    - `"date"`: dates and times, also as texts; `"day-first date"`, if texts such as
      13/1/2020 or 5.1.2020 say that the day comes first.
    - `"string"`, and `"list"`, of strings or integers. Numbers, and texts of dates,
      whose dtype is `category` are strings.
    - `"id"`: what tells rows apart, so that a model learns nothing from it. These are
      strings with another value in almost every row, and numbers of the rows.
    - `"constant"`: one value, or none.

    Args:
        frame: The rows to train on, without labels.
        hashed: The names of columns of ids, which are strings or lists.

    Returns:
        A dict from the names of columns to kinds.

    Example:
        >>> import pandas as pd
        >>> days = ["2020-01-05", "2020-01-06"]
        >>> column_kinds(pd.DataFrame({"day": days, "price": [1.5, None], "one": 1}))
        {'day': 'date', 'price': 'number', 'one': 'constant'}
    """
    names = [*as_table(frame).columns]
    if unknown := {*hashed} - {*names}:
        raise ValueError(
            f"`hashed` must name columns of the table: {', '.join(names)}. "
            f"Received: {', '.join(sorted(unknown))}."
        )
    return {name: _kind(name, frame[name], name in hashed) for name in names}


def as_table(frame: Any) -> Any:
    """A data frame of pandas, also from one of polars or Arrow, or raise an error."""
    if not hasattr(frame, "iloc") and hasattr(frame, "to_pandas"):
        frame = frame.to_pandas()
    if not hasattr(frame, "iloc"):
        raise ValueError(
            "A table must be a data frame of pandas. Received: a "
            f"{type(frame).__name__}. Give its columns names: "
            "`pandas.DataFrame(values).add_prefix('x')`."
        )
    names = frame.columns
    odd = [*names[names.duplicated()], *(x for x in names if not x or x != str(x))]
    if odd:
        raise ValueError(
            "The columns of a table must have different names, which are strings. "
            f"Received: {odd[0]!r}. Rename it; numbers become strings by "
            "`frame.rename(columns=str)`."
        )
    return frame


def _kind(name, values, is_hashed):
    """The kind of one column."""
    column = inferred(values)
    known = column.dropna()
    kind = values_kind(name, known) if len(known) else "constant"
    if _values(column).nunique(dropna=False) < 2:
        return "constant"
    is_category = str(values.dtype) == "category" and (
        kind == "number" or (kind in DATES and isinstance(known.iloc[0], str))
    )
    if is_category or (is_hashed and kind != "list"):
        return "string"
    if kind == "string" and len(known) > FEW_ROWS:
        tells_apart = known.nunique() > MOST_VALUES * len(known)
        return "id" if tells_apart else kind
    if kind == "number" and ROW_NUMBERS.fullmatch(name):
        is_whole = column.dtype.kind in "iu" and len(known) == len(column)
        return "id" if is_whole and column.is_unique else kind
    return kind


def _values(column):
    """The values of a column, lists as tuples, which can be counted."""
    if column.dtype.kind != "O":
        return column
    return column.map(lambda each: tuple(each) if isinstance(each, LISTS) else each)


def values_kind(name: str, known: Any) -> str:
    """The kind of values without gaps: what they are, and not what they tell."""
    pd = import_pandas()
    found = pd.api.types.infer_dtype(known, skipna=True)
    numbers = "integer", "floating", "decimal", "mixed-integer-float", "timedelta64"
    if found in {*numbers, "timedelta"}:
        return "number"
    if found == "boolean":
        return "boolean"
    if found in {"date", "datetime", "datetime64"}:
        return DATES[0]
    if found == "string":
        if not all(map(DATE.fullmatch, known.str.strip().unique())):
            return "string"
        return DATES[_says_day_first(known)]
    if all(isinstance(each, LISTS) for each in known):
        if all(_is_item(each) for items in known for each in items):
            return "list"
        raise ValueError(
            f"The column {name!r} must have lists of strings or of integers. Received: "
            f"{shown(known.iloc[0])}. Give each number of a vector a column."
        )
    other = next(each for each in known if not isinstance(each, str))
    raise ValueError(
        f"The column {name!r} must have numbers, or strings alone, dates, or lists of "
        f"strings. Received: {shown(other)} of the type {type(other).__name__}. "
        f"Convert it, for example with `frame[{name!r}].astype(str)`, or remove it."
    )


def _is_item(value):
    """Check whether a list may have an item: a string, an integer, or a gap."""
    return _is_gap(value) or isinstance(value, (str, int, np.integer))


def _is_gap(value):
    """Check whether an item is missing, without the time that pandas takes for one."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _says_day_first(texts):
    """Check whether the day comes first: 5.1.2020, or a first number beyond 12."""
    texts = texts.str.strip()
    first = texts.str.extract(DAY_OR_MONTH)[0].astype("float64")
    return bool(first.max() > 12 or texts.str.contains(r"^\d\d?\.\d").any())


def convert_columns(frame: Any, kinds: Mapping[str, str]) -> Any:
    """Convert the columns of a table by their kinds to what a model reads.

    - Numbers keep their values. Booleans become 1 and 0. Infinity is missing.
    - A date becomes `NAME_days` since 1970, `NAME_month` from 1, `NAME_weekday` with 0
      for Monday, and `NAME_hour`, with minutes as fractions.
    - Strings have None where they are missing. Numbers among them become strings.
    - Ids and constants are left out.
    - In names, `_` takes the place of `/`, which Keras refuses.

    Args:
        frame: A table with these columns; it may have others.
        kinds: What `column_kinds` found in the rows to train on.

    Returns:
        A data frame with the same index.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"day": ["2020-01-05"], "price": [True]})
        >>> convert_columns(frame, {"day": "date", "price": "number"}).loc[0].tolist()
        [18266.0, 1.0, 6.0, 0.0, 1.0]
    """
    pd = import_pandas()
    read = {name: kind for name, kind in kinds.items() if kind not in LEFT_OUT}
    if lacking := [name for name in read if name not in as_table(frame).columns]:
        raise ValueError(
            f"The table must have the columns {', '.join(read)}. Received: no "
            f"{', '.join(lacking)}."
        )
    columns = {}
    for name, kind in read.items():
        column = inferred(frame[name])
        if kind in DATES:
            found = _date_parts(name, _as_dates(name, column, kind))
        else:
            found = {name: CONVERT[kind](name, column)}
        found = {plain_name(part): values for part, values in found.items()}
        if same := [each for each in found if each in columns]:
            raise ValueError(
                f"The column {name!r} becomes {', '.join(found)}, which must be new "
                f"names. Received: there is another {same[0]!r}. Rename a column."
            )
        columns |= found
    return pd.DataFrame(columns, index=frame.index)


def plain_name(name: str) -> str:
    """A name that inputs and outputs of Keras may have: it has `_` in place of `/`."""
    return name.replace("/", "_")


def _as_numbers(name, column):
    """A column of numbers, exact, with NaN or NA where they are missing."""
    known = column.dropna()
    if len(known) and values_kind(name, known) not in {"number", "boolean"}:
        raise ValueError(
            f"The column {name!r} must have numbers, as in the rows to train on. "
            f"Received: {shown(known.iloc[0])}. Convert it, or remove these rows."
        )
    if not len(known) or column.dtype.kind == "O":
        column = column.astype(object).where(column.notna(), np.nan)
    if column.dtype.kind == "m":
        column = column.dt.total_seconds()
    if column.dtype.kind == "i" or (column.dtype.kind == "u" and known.max() < 2**63):
        # Differences of unsigned and of short integers would wrap around.
        column = column.astype("Int64")
    else:
        column = column.astype("float64")
        beyond = np.isfinite(column) & (abs(column) > LARGEST)
        if beyond.any():
            raise ValueError(
                f"The column {name!r} must have numbers that float32 holds, up to "
                f"{LARGEST:.2g}. Received: {column[beyond].iloc[0]:g}. Divide them by "
                "a number."
            )
        column = column.where(np.isfinite(column))
    return column


def _as_dates(name, column, kind):
    """A column of dates or their texts as dates, in the time of Greenwich."""
    pd = import_pandas()
    if column.dtype.kind == "M":
        return pd.to_datetime(column, utc=True).dt.tz_localize(None)
    # By place: rows of two files may have the same index.
    rows = np.flatnonzero(column.notna())
    texts = column.iloc[rows].astype(str).str.strip().set_axis(rows)
    unknown = [each for each in texts.unique() if not DATE.fullmatch(each)]
    is_day_first = kind == DATES[1]
    numbers = texts.str.extract(DAY_OR_MONTH)
    has_year_first = numbers[0].isna()
    if is_day_first:
        unknown += [*texts[numbers[1].astype("float64") > 12]]
    elif _says_day_first(texts):
        unknown += [*texts[~has_year_first]]
    try:
        if unknown:
            raise ValueError(unknown[0])
        # pandas would take the last number of 2020-12-05 for the month.
        parts = (texts[has_year_first], False), (texts[~has_year_first], is_day_first)
        dates = pd.concat(
            pd.to_datetime(part, dayfirst=first, format="mixed", utc=True)
            for part, first in parts
        )
    except (ValueError, OverflowError) as error:
        order = "the day" if is_day_first else "the month"
        raise ValueError(
            f"The column {name!r} must have dates, such as 2020-12-31, or with {order} "
            f"first, as in the rows to train on. Received: {error}. Correct it, or, if "
            f"they are no dates, pass `frame[{name!r}].astype('category')`, or remove "
            "the column; in scripts `--drop`."
        ) from error
    dates = dates.dt.tz_localize(None).reindex(range(len(column)))
    return dates.set_axis(column.index)


def _date_parts(name, dates):
    """The numbers that take the place of a column of dates, by name."""
    pd = import_pandas()
    parts = {
        "days": (dates - pd.Timestamp("1970-01-01")).dt.days,
        "month": dates.dt.month,
        "weekday": dates.dt.day_of_week,
        "hour": dates.dt.hour + dates.dt.minute / 60 + dates.dt.second / 3600,
    }
    return {f"{name}_{part}": each.astype("float64") for part, each in parts.items()}


def _as_strings(name, column):
    """A column of strings; whole numbers among them have no decimal point."""
    missing = column.isna().to_numpy()
    found = np.full(len(column), None, object)
    found[~missing] = [_text(name, value) for value in column[~missing]]
    return import_pandas().Series(found, column.index, dtype=object)


def _text(name, value):
    """A value of a column of strings as one."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, *LISTS)):
        raise ValueError(
            f"The column {name!r} must have strings, as in the rows to train on. "
            f"Received: {shown(value)}. Convert it."
        )
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_whole else value)


def _as_lists(name, column):
    """A column of lists of strings, of which missing ones are None."""
    for value in column.dropna():
        if not isinstance(value, LISTS):
            raise ValueError(
                f"The column {name!r} must have lists of strings, as in the rows to "
                f"train on. Received: {shown(value)}. Convert it."
            )

    def texts(items):
        return [None if _is_gap(each) else _text(name, each) for each in items]

    return column.map(lambda each: texts(each) if isinstance(each, LISTS) else None)


CONVERT = {
    "number": _as_numbers,
    "boolean": _as_numbers,
    "string": _as_strings,
    "list": _as_lists,
}


def describe_columns(frame: Any, kinds: Mapping[str, str]) -> list[str]:
    """Lines that say which columns are left out, how dates are read, and which are ids.

    Args:
        frame: The rows to train on.
        kinds: What `column_kinds` found in them.
    """
    lines = []
    for name, kind in kinds.items():
        known = frame[name].dropna()
        if kind == "constant":
            count = "one value" if len(known) else "no value"
            lines.append(
                f"Left out: {name}, which has {count} in the rows to train on."
            )
        elif kind == "id":
            lines.append(
                f"Left out: {name}, which has another value in almost every row."
            )
        elif kind in DATES:
            first = known.iloc[0]
            date = _as_dates(name, inferred(known[:1]), kind).iloc[0]
            lines.append(
                f"{name}: dates, such as {first} for {date:%d %B %Y}. In their place "
                f"are {name}_days since 1970, {name}_month from 1, {name}_weekday, 0 "
                f"for Monday, and {name}_hour."
            )
        elif kind == "number" and ID.fullmatch(name):
            lines.append(
                f"{name}: numbers. If they are ids, pass `hashed` ({name!r} and a "
                "number of embeddings); in scripts `--hashed`."
            )
    return lines


def sort_rows(frame: Any, name: str) -> Any:
    """Sort the rows of a table by a column of numbers or dates without gaps.

    Rows with equal values keep their order.

    Example:
        >>> import pandas as pd
        >>> sort_rows(pd.DataFrame({"day": ["2/1/2020", "1/2/2020"]}), "day").index[0]
        1
    """
    if name not in frame.columns:
        raise ValueError(
            "The rows must be sorted by one of the columns "
            f"{', '.join(frame.columns)}. Received: {name}."
        )
    column = inferred(frame[name])
    kind = "constant" if column.isna().any() else values_kind(name, column)
    if kind not in {*DATES, "number"}:
        raise ValueError(
            "The rows must be sorted by a column of numbers or dates without gaps. "
            f"Received: {name!r}."
        )
    values = _as_dates(name, column, kind) if kind in DATES else column
    return frame.iloc[np.argsort(values.to_numpy(), kind="stable")]
