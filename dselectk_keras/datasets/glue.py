"""Eight problems of language understanding, as text to be answered with text."""

import io
import os
import zipfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dselectk_keras.datasets import _files, _sampling
from dselectk_keras.datasets._files import File
from dselectk_keras.datasets.dataset import Dataset
from dselectk_keras.datasets.split import Split
from dselectk_keras.utils import check_count

_URL = "https://dl.fbaipublicfiles.com/glue/data/"
_MRPC_URL = "https://dl.fbaipublicfiles.com/senteval/senteval_data/"
_MRPC_DEV_URL = (
    "https://firebasestorage.googleapis.com/v0/b/mtl-sentence-representations.appspot"
    ".com/o/data%2Fmrpc_dev_ids.tsv?alt=media&token=ec5c0836-31d5-48f4-b431-7480817f1adc"
)
FILES = {
    "CoLA.zip": File(
        376_971,
        "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff",
        _URL + "CoLA.zip",
    ),
    "SST-2.zip": File(
        7_439_277,
        "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
        _URL + "SST-2.zip",
    ),
    "msr_paraphrase_train.txt": File(
        1_047_044,
        "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89",
        _MRPC_URL + "msr_paraphrase_train.txt",
    ),
    "mrpc_dev_ids.tsv": File(
        6_222,
        "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7",
        _MRPC_DEV_URL,
    ),
    "STS-B.zip": File(
        802_872,
        "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85",
        _URL + "STS-B.zip",
    ),
    "QQP.zip": File(
        41_696_084,
        "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0",
        _URL + "QQP.zip",
    ),
    "MNLI.zip": File(
        312_783_507,
        "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633",
        _URL + "MNLI.zip",
    ),
    "QNLIv2.zip": File(
        10_627_589,
        "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5",
        _URL + "QNLIv2.zip",
    ),
    "RTE.zip": File(
        697_150,
        "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee",
        _URL + "RTE.zip",
    ),
}


class Table(NamedTuple):
    """The file and the columns of a task."""

    archive: str
    folder: str
    texts: dict[str, str]  # Columns, by their names in the text.
    label: str
    classes: tuple[str, ...] = ("0", "1")


_SENTENCE = {"sentence": "sentence"}
_PAIR = {"sentence1": "sentence1", "sentence2": "sentence2"}
_ENTAILMENT = ("entailment", "not_entailment")
_TABLES = {
    "mrpc": Table(
        "", "", {"sentence1": "#1 String", "sentence2": "#2 String"}, "Quality"
    ),
    "cola": Table("CoLA.zip", "CoLA", _SENTENCE, "label"),
    "sst2": Table("SST-2.zip", "SST-2", _SENTENCE, "label"),
    "stsb": Table("STS-B.zip", "STS-B", _PAIR, "score", ()),
    "qqp": Table(
        "QQP.zip",
        "QQP",
        {"question1": "question1", "question2": "question2"},
        "is_duplicate",
    ),
    "mnli": Table(
        "MNLI.zip",
        "MNLI",
        {"premise": "sentence1", "hypothesis": "sentence2"},
        "gold_label",
        ("entailment", "neutral", "contradiction"),
    ),
    "qnli": Table(
        "QNLIv2.zip",
        "QNLI",
        {"question": "question", "sentence": "sentence"},
        "label",
        _ENTAILMENT,
    ),
    "rte": Table("RTE.zip", "RTE", _PAIR, "label", _ENTAILMENT),
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
        tasks: some of `"mrpc"`, `"cola"`, `"sst2"`, `"stsb"`, `"qqp"`, `"mnli"`,
            `"qnli"`, `"rte"`. Defaults to all of them.
        num_train: number of training examples, of all tasks together, chosen at
            random; `None` is all. Defaults to `None`.
        num_validation: number of validation examples; `None` is all.
            Defaults to `None`.
        num_test: number of test examples; `None` is all. Defaults to `None`.
        seed: non-negative integer; determines the splits. Defaults to `0`.
        data_dir: folder that holds GLUE's archives (for MRPC
            `msr_paraphrase_train.txt` and `mrpc_dev_ids.tsv`), or a folder `glue` with
            them; `None` downloads them. Defaults to `None`.

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
    _sampling.check_some("tasks", tasks, TASKS)
    seed = check_count("seed", seed, minimum=0)
    parts = [_task_splits(task, seed, data_dir) for task in tasks]
    splits = []
    for stream, (name, size) in enumerate(
        {
            "num_train": num_train,
            "num_validation": num_validation,
            "num_test": num_test,
        }.items()
    ):
        examples = [(n, *e) for n, part in enumerate(parts) for e in part[stream]]
        rng = _sampling.random_stream(seed, 1, stream)
        (chosen,) = _sampling.partition(rng, len(examples), **{name: size})
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
    train, dev, other = (
        _read_mrpc(data_dir) if task == "mrpc" else _read(task, data_dir)
    )
    if task == "mnli":
        return train, other, dev
    rng = _sampling.random_stream(seed, 0, TASKS.index(task))
    if task in _SMALL:
        halves = _sampling.partition(
            rng, len(dev), num_validation=len(dev) // 2, num_test=None
        )
        return train, *([dev[i] for i in half] for half in halves)
    kept, held_out = _sampling.partition(
        rng, len(train), num_train=None, num_validation=_HELD_OUT
    )
    return [train[i] for i in kept], [train[i] for i in held_out], dev


def _read(task, data_dir):
    """The examples for training and development, and MNLI's mismatched ones."""
    table = _TABLES[task]
    files = {table.archive: FILES[table.archive]}
    path = _files.fetch_files("glue", files, data_dir)[table.archive]
    suffixes = ("_matched", "_mismatched") if task == "mnli" else ("",)
    names = ["train", *(f"dev{suffix}" for suffix in suffixes)]
    header = _COLA_COLUMNS if task == "cola" else None
    columns = [*table.texts.values(), table.label]
    with zipfile.ZipFile(path) as archive:
        train, dev, *other = (
            _format_examples(
                task,
                _read_rows(archive.read(f"{table.folder}/{name}.tsv"), columns, header),
            )
            for name in names
        )
    return train, dev, other[0] if other else []


def _read_mrpc(data_dir):
    """MRPC is one file, and a list of the ids of the development pairs."""
    names = ("msr_paraphrase_train.txt", "mrpc_dev_ids.tsv")
    paths = _files.fetch_files("glue", {name: FILES[name] for name in names}, data_dir)
    pairs, dev_ids = (paths[name].read_bytes() for name in names)
    dev = set(_read_rows(dev_ids, _MRPC_IDS, header=_MRPC_IDS))
    parts = [], []
    table = _TABLES["mrpc"]
    for *ids, first, second, label in _read_rows(
        pairs, [*_MRPC_IDS, *table.texts.values(), table.label]
    ):
        parts[tuple(ids) in dev].append((first, second, label))
    return *(_format_examples("mrpc", part) for part in parts), []


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
    _, _, texts, _, classes = _TABLES[task]
    found = []
    for *values, label in rows:
        named = (f"{n}: {value}" for n, value in zip(texts, values, strict=True))
        answer = (
            str(classes.index(label))
            if classes
            else f"{round(float(label) * 5) / 5:.1f}"
        )
        found.append((" ".join([task, *named]), answer))
    return found
