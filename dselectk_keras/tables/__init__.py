from dselectk_keras.tables.columns import (
    column_kinds,
    convert_columns,
    describe_columns,
    sort_rows,
)
from dselectk_keras.tables.encoder import TableEncoder, table_encoder
from dselectk_keras.tables.model import Settings, TableModel
from dselectk_keras.tables.read import read_table, sample_table
from dselectk_keras.tables.targets import Target, find_targets
from dselectk_keras.tables.trees import Trees

__all__ = [
    "Settings",
    "TableEncoder",
    "TableModel",
    "Target",
    "Trees",
    "column_kinds",
    "convert_columns",
    "describe_columns",
    "find_targets",
    "read_table",
    "sample_table",
    "sort_rows",
    "table_encoder",
]
