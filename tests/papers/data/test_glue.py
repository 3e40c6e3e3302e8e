"""GLUE's tables become texts and answers."""

import io
import zipfile

import numpy as np
import pytest

from papers.data import glue

TABLES = {
    # folder: header, row of a number
    "SST-2": ("sentence\tlabel", "film {n}\t{bit}"),
    "STS-B": (
        "index\tgenre\tsentence1\tsentence2\tscore",
        "{n}\tnews\ta {n}\tb {n}\t{score}",
    ),
    "QQP": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        '{n}\t1\t2\twhat "{n}\twho\u2028{n}\t{bit}',
    ),
    "QNLI": ("index\tquestion\tsentence\tlabel", "{n}\twhy {n}\tso {n}\t{entailment}"),
    "RTE": (
        "index\tsentence1\tsentence2\tlabel",
        "{n}\tif {n}\tthen {n}\t{entailment}",
    ),
    "MNLI": (
        "index\tsentence1\tsentence2\tlabel1\tgold_label",
        "{n}\tif {n}\tthen {n}\tneutral\t{relation}",
    ),
    "CoLA": (None, "book\t{bit}\t*\tword {n}"),
}
PARTS = {"train": range(1_100), "dev": range(1_100, 1_140)}
MNLI_PARTS = {
    "train": range(50),
    "dev_matched": range(100, 120),
    "dev_mismatched": range(200, 210),
}


def line(row, n):
    return row.format(
        n=n,
        bit=n % 2,
        entailment=("entailment", "not_entailment")[n % 2],
        relation=("entailment", "neutral", "contradiction")[n % 3],
        score=f"{n % 50 / 10 + 0.07:.3f}",
    )


@pytest.fixture
def data_dir(tmp_path, official):
    for folder, (header, row) in TABLES.items():
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            for part, numbers in (MNLI_PARTS if folder == "MNLI" else PARTS).items():
                lines = [header] * bool(header) + [line(row, n) for n in numbers]
                if folder == "QQP":
                    lines.append("broken\tline")
                file.writestr(f"{folder}/{part}.tsv", "\n".join(lines) + "\n")
        name = "QNLIv2" if folder == "QNLI" else folder
        official("glue", f"{name}.zip", archive.getvalue())
    pairs = [f"{n % 2}\t{n}\t{n + 1}\tsaid {n}\ttold {n}" for n in range(1_140)]
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    content = "\r\n".join([header, *pairs, ""]).encode("utf-8-sig")
    official("glue", "msr_paraphrase_train.txt", content)
    dev = "".join(f"{n}\t{n + 1}\n" for n in PARTS["dev"])
    official("glue", "mrpc_dev_ids.tsv", dev.encode())
    return tmp_path


def texts(split):
    return set(split.x["text"])


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("mrpc", "mrpc sentence1: said {n} sentence2: told {n}"),
        ("cola", "cola sentence: word {n}"),
        ("sst2", "sst2 sentence: film {n}"),
        ("stsb", "stsb sentence1: a {n} sentence2: b {n}"),
        ("qqp", 'qqp question1: what "{n} question2: who\u2028{n}'),
        ("qnli", "qnli question: why {n} sentence: so {n}"),
        ("rte", "rte sentence1: if {n} sentence2: then {n}"),
        ("mnli", "mnli premise: if {n} hypothesis: then {n}"),
    ],
)
def test_texts_and_answers(data_dir, task, text):
    data = glue([task], data_dir=data_dir)
    assert data.info["tasks"] == (task,)
    assert data.task_names == ("target",)
    assert data.num_classes == (len(data.info["targets"]),) == (29,)
    numbers = {text.format(n=n): n for n in range(1_140)}
    for split in (data.train, data.validation, data.test):
        assert (split.x["task"] == 0).all()
        assert (split.x["task"].dtype, split.y.dtype) == (np.int32, np.int32)
        for example, (label,) in zip(split.x["text"], split.y, strict=True):
            n = numbers[example]
            answer = data.info["targets"][label]
            if task == "stsb":
                assert abs(float(answer) - (n % 50 / 10 + 0.07)) <= 0.1 + 1e-9
            else:
                assert answer == str(n % (3 if task == "mnli" else 2))


@pytest.mark.parametrize(
    ("tasks", "sizes"),
    [
        (("mrpc", "cola", "stsb", "rte"), (1_100, 20, 20)),
        (("sst2", "qqp", "qnli"), (100, 1_000, 40)),
        (("mnli",), (50, 10, 20)),
    ],
)
def test_splits_are_those_of_the_papers_code(data_dir, tasks, sizes):
    for task in tasks:
        data = glue([task], data_dir=data_dir)
        splits = (data.train, data.validation, data.test)
        assert tuple(split.num_samples for split in splits) == sizes
        assert len(set.union(*map(texts, splits))) == sum(sizes)


def test_tasks_are_mixed(data_dir):
    data = glue(["rte", "mnli"], data_dir=data_dir)
    assert data.train.num_samples == 1_150
    for text, task in zip(data.train.x["text"], data.train.x["task"], strict=True):
        assert text.startswith(data.info["tasks"][task])
    assert 0 < data.train.x["task"][:100].mean() < 1


def test_the_seed_decides_splits_and_order(data_dir):
    load = {"tasks": ["sst2"], "data_dir": data_dir, "num_train": 50}
    first, again, other = (glue(seed=seed, **load) for seed in (1, 1, 2))
    assert first.train.x["text"].tolist() == again.train.x["text"].tolist()
    assert texts(first.validation) == texts(again.validation) != texts(other.validation)
    assert first.train.num_samples == 50
