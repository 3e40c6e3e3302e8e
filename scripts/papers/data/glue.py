"""Eight problems of language understanding, as text to be answered with text."""

import io
import os
import zipfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dselectk_keras.datasets import sampling
from dselectk_keras.datasets.dataset import Dataset, Split
from papers.data import official_files
from papers.data._check_some import check_some


class Table(NamedTuple):
    """The file and the columns of a task."""

    archive: str
    folder: str
    texts: dict[str, str]  # Columns, by their names in the text.
    label: str = "label"
    classes: tuple[str, ...] = ("0", "1")

    @property
    def columns(self):
        """The columns of the texts and of the label."""
        return [*self.texts.values(), self.label]


_SENTENCE = {"sentence": "sentence"}
_PAIR = {"sentence1": "sentence1", "sentence2": "sentence2"}
_QUESTIONS = {"question1": "question1", "question2": "question2"}
_PREMISE = {"premise": "sentence1", "hypothesis": "sentence2"}
_QUESTION = {"question": "question", "sentence": "sentence"}
_ENTAILMENT = ("entailment", "not_entailment")
_RELATIONS = ("entailment", "neutral", "contradiction")
_STRINGS = {"sentence1": "#1 String", "sentence2": "#2 String"}
_TABLES = {
    "mrpc": Table("", "", _STRINGS, "Quality"),
    "cola": Table("CoLA.zip", "CoLA", _SENTENCE),
    "sst2": Table("SST-2.zip", "SST-2", _SENTENCE),
    "stsb": Table("STS-B.zip", "STS-B", _PAIR, "score", ()),
    "qqp": Table("QQP.zip", "QQP", _QUESTIONS, "is_duplicate"),
    "mnli": Table("MNLI.zip", "MNLI", _PREMISE, "gold_label", _RELATIONS),
    "qnli": Table("QNLIv2.zip", "QNLI", _QUESTION, classes=_ENTAILMENT),
    "rte": Table("RTE.zip", "RTE", _PAIR, classes=_ENTAILMENT),
}
TASKS = tuple(_TABLES)
_SMALL = ("mrpc", "cola", "stsb", "rte")
_HELD_OUT = 1_000
# The answers: classes by number, and scores from 0 to 5 in steps of 0.2.
TARGETS = ("0", "1", "2", *(f"{step / 5:.1f}" for step in range(26)))
_MRPC_IDS = ["#1 ID", "#2 ID"]
_COLA_COLUMNS = ["source", "label", "mark", "sentence"]


def glue(
    tasks: Sequence[str] = TASKS,
    num_train: int | None = None,
    num_validation: int | None = None,
    num_test: int | None = None,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
) -> Dataset:
    """GLUE: a mixture of language understanding tasks, each posed as a text.

    An example has a text such as `"rte sentence1: ... sentence2: ..."`, the index of
    its task, which gates can use, and an answer: one of 29 short texts for all tasks.

    The paper poses each example in the prompts of PromptSource, which are not included:
    here each task has one fixed format, from the paper's released code.

    From the paper and its released code: eight tasks of GLUE, all but WNLI, as text to
    text; answers are the number of the class, and for STS-B the score rounded to 0.2.
    GLUE's test files have no labels, therefore: where the training file is small (MRPC,
    CoLA, STS-B, RTE), validation and test are halves of GLUE's development file; for
    SST-2, QQP and QNLI validation is 1,000 examples of the training file and test the
    development file; for MNLI they are the mismatched and the matched development file.
    Ours: the label is the number of the answer, so that a classifier can learn it; the
    seed.

    Args:
        tasks: Some of `"mrpc"`, `"cola"`, `"sst2"`, `"stsb"`, `"qqp"`, `"mnli"`,
            `"qnli"`, `"rte"`. Defaults to all of them.
        num_train: Number of training examples, of all tasks together, chosen at random;
            `None` is all.
        num_validation: Number of validation examples; `None` is all.
        num_test: Number of test examples; `None` is all.
        seed: Non-negative integer; determines the splits.
        data_dir: Folder that holds GLUE's archives (for MRPC `msr_paraphrase_train.txt`
            and `mrpc_dev_ids.tsv`), or a folder `glue` with them; `None` downloads
            them.

    Returns:
        A `Dataset` of one task, `target`. Inputs are a dict of `text` (samples,), an
        array of `str`, and `task` (samples,), int32; labels are int32 (samples, 1). Its
        `info` holds `tasks`, the names by number, and `targets`, the answers by number.

    Example:
        >>> data = glue(["rte"], data_dir="data")  # doctest: +SKIP
        >>> data.train.x["text"][0][:15]  # doctest: +SKIP
        'rte sentence1: '

    Reference:
        Muqeeth et al., Soft Merging of Experts with Adaptive Routing, 2023
        (https://arxiv.org/abs/2306.03745); Wang et al., GLUE: A Multi-Task Benchmark
        and Analysis Platform for Natural Language Understanding, 2019
        (https://gluebenchmark.com).
    """
    check_some("tasks", tasks, TASKS)
    parts = [_task_splits(task, seed, data_dir) for task in tasks]
    sizes = {"num_train": num_train, "num_validation": num_validation}
    splits = []
    for stream, (name, size) in enumerate({**sizes, "num_test": num_test}.items()):
        examples = [(n, *e) for n, part in enumerate(parts) for e in part[stream]]
        rng = sampling.random_stream(seed, 1, stream)
        (chosen,) = sampling.partition(rng, len(examples), **{name: size})
        numbers, texts, answers = zip(*(examples[i] for i in chosen), strict=True)
        x = {"text": np.array(texts, object), "task": np.array(numbers, "int32")}
        y = np.array([TARGETS.index(answer) for answer in answers], "int32")
        splits.append(Split(x, y[:, None]))
    return Dataset(
        *splits,
        task_names=("target",),
        task_kinds=("multiclass",),
        num_classes=(len(TARGETS),),
        info={"tasks": tuple(tasks), "targets": TARGETS},
    )


def _task_splits(task, seed, data_dir):
    """The texts and answers of the three splits of a task."""
    tables = _read_mrpc(data_dir) if task == "mrpc" else _read(task, data_dir)
    train, dev, other = (_format_examples(task, rows) for rows in tables)
    if task == "mnli":
        return train, other, dev
    rng = sampling.random_stream(seed, 0, TASKS.index(task))
    if task in _SMALL:
        halves = sampling.partition(
            rng, len(dev), num_validation=len(dev) // 2, num_test=None
        )
        return train, *([dev[i] for i in half] for half in halves)
    kept, held_out = sampling.partition(
        rng, len(train), num_train=None, num_validation=_HELD_OUT
    )
    return [train[i] for i in kept], [train[i] for i in held_out], dev


def _read(task, data_dir):
    """The examples for training and development, and MNLI's mismatched ones."""
    table = _TABLES[task]
    suffixes = ("_matched", "_mismatched") if task == "mnli" else ("",)
    names = ["train", *(f"dev{suffix}" for suffix in suffixes)]
    header = _COLA_COLUMNS if task == "cola" else None
    (path,) = official_files.fetch_files("glue", data_dir, table.archive)
    with zipfile.ZipFile(path) as archive:
        contents = [archive.read(f"{table.folder}/{name}.tsv") for name in names]
    train, dev, *other = (_read_rows(each, table.columns, header) for each in contents)
    return train, dev, other[0] if other else []


def _read_mrpc(data_dir):
    """MRPC is one file, and a list of the ids of the development pairs."""
    names = ("msr_paraphrase_train.txt", "mrpc_dev_ids.tsv")
    paths = official_files.fetch_files("glue", data_dir, *names)
    pairs, dev_ids = (path.read_bytes() for path in paths)
    dev = set(_read_rows(dev_ids, _MRPC_IDS, header=_MRPC_IDS))
    parts = [], []
    for *ids, first, second, label in _read_rows(
        pairs, [*_MRPC_IDS, *_TABLES["mrpc"].columns]
    ):
        parts[tuple(ids) in dev].append((first, second, label))
    return *parts, []


def _read_rows(content, columns, header=None):
    """The values of some columns per line, without incomplete lines."""
    # Not `splitlines`: the texts contain other separators than line feeds.
    lines = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="\n")
    rows = (line.rstrip("\r\n").split("\t") for line in lines)
    header = header or next(rows)
    wanted = [header.index(column) for column in columns]
    return [tuple(row[i] for i in wanted) for row in rows if len(row) >= len(header)]


def _format_examples(task, rows):
    """Pairs of a text and an answer."""
    table = _TABLES[task]
    found = []
    for *values, label in rows:
        named = (f"{n}: {value}" for n, value in zip(table.texts, values, strict=True))
        if table.classes:
            answer = str(table.classes.index(label))
        else:
            answer = f"{round(float(label) * 5) / 5:.1f}"
        found.append((" ".join([task, *named]), answer))
    return found
