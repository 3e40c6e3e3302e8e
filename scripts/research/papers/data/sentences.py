"""Eight generated text tasks, one in the place of each data set of GLUE."""

from typing import NamedTuple

import numpy as np

NOUNS = ["dog", "cat", "king", "cook", "boat", "tree", "girl", "bird", "horse", "fish"]
VERBS = ["sees", "likes", "follows", "helps", "hates", "finds", "draws", "hears"]
GOOD = ["brave", "bold", "clever", "bright"]
BAD = ["cruel", "mean", "weak", "feeble"]
PLAIN = ["red", "old", "tall", "small"]
_PAIRS = list(zip(GOOD[::2] + BAD[::2], GOOD[1::2] + BAD[1::2], strict=True))
SYNONYMS = dict(_PAIRS) | {other: one for one, other in _PAIRS}
GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
SPECIAL = ["<pad>", "<mask>", "<sep>", "the", "who", "what"]
WORDS = [*SPECIAL, *GLUE, *NOUNS, *VERBS, *GOOD, *BAD, *PLAIN]
NUMBERS = {word: number for number, word in enumerate(WORDS)}
LENGTH = 20
# Answers are shared by all tasks: yes or no, three classes, six degrees.
NUM_ANSWERS = 6
# Training examples differ in number, less than GLUE's do: shares of the largest task.
SHARES = dict(zip(GLUE, (0.1, 0.4, 0.05, 0.06, 1.0, 1.0, 0.4, 0.04), strict=True))


class Texts(NamedTuple):
    """Texts as numbers of words, their tasks, and their answers."""

    words: np.ndarray
    tasks: np.ndarray
    answers: np.ndarray


def sentence(rng):
    """A sentence: an adjective and a noun, a verb, an adjective and a noun."""
    one, other = rng.choice(NOUNS, 2, replace=False)
    adjectives = [rng.choice([*GOOD, *BAD, *PLAIN]) for _ in "ab"]
    return ["the", adjectives[0], one, rng.choice(VERBS), "the", adjectives[1], other]


def _cola(first, rng):
    """Acceptable: is the order of the words right?"""
    right = rng.integers(2)
    if not right:
        i, j = rng.choice(len(first), 2, replace=False)
        while first[i] == first[j]:
            i, j = rng.choice(len(first), 2, replace=False)
        first[i], first[j] = first[j], first[i]
        # Two nouns, or two adjectives, make another right sentence.
        right = {i, j} in ({1, 5}, {2, 6}, {0, 4})
    return first, right


def _sst2(first, rng):
    """Sentiment: are the adjectives good?"""
    good = rng.integers(2)
    first[1], first[5] = (rng.choice(GOOD if good else BAD) for _ in "ab")
    return first, good


def _paraphrase(first, rng):
    """Paraphrase: does the second sentence say the same, with synonyms?"""
    same = rng.integers(2)
    first[1], first[5] = (rng.choice([*GOOD, *BAD]) for _ in "ab")
    second = [SYNONYMS.get(word, word) for word in first]
    if not same:
        _change(second, rng.choice([2, 3, 6]), rng)
    return [*first, "<sep>", *second], same


def _stsb(first, rng):
    """Similarity: how many of five words are equal?"""
    score = rng.integers(6)
    second = list(first)
    for place in rng.permutation([1, 2, 3, 5, 6])[score:]:
        _change(second, place, rng)
    return [*first, "<sep>", *second], score


def _mnli(first, rng):
    """Entailment (0), neutral (1) or contradiction (2)."""
    answer = rng.integers(3)
    second = list(first)
    if answer == 0:
        del second[rng.choice([1, 5])]
    elif answer == 1:
        second.insert(2, rng.choice(PLAIN))
    else:
        _change(second, 3, rng)
    return [*first, "<sep>", *second], answer


def _qnli(first, rng):
    """Does the sentence answer the question who does, or what is done to?"""
    right = rng.integers(2)
    who = rng.integers(2)
    asked = [first[3], first[6]] if who else [first[2], first[3]]
    if not right:
        _change(asked, rng.integers(2), rng)
    return [["what", "who"][who], *asked, "<sep>", *first], right


def _rte(first, rng):
    """Entailment or not."""
    answer = rng.integers(2)
    second = [word for i, word in enumerate(first) if i not in (1, 5)]
    if answer:
        _change(second, rng.choice([1, 2, 4]), rng)
    return [*first, "<sep>", *second], answer


EXAMPLES = {
    "cola": _cola,
    "sst2": _sst2,
    "mrpc": _paraphrase,
    "stsb": _stsb,
    "qqp": _paraphrase,
    "mnli": _mnli,
    "qnli": _qnli,
    "rte": _rte,
}


def _change(words, place, rng):
    """Replace a word by another of its kind."""
    word = words[place]
    kinds = (NOUNS, VERBS, [*GOOD, *BAD, *PLAIN])
    (kind,) = (kind for kind in kinds if word in kind)
    words[place] = rng.choice([other for other in kind if other != word])


def texts(sizes, seed):
    """Texts of all tasks."""
    rng = np.random.default_rng(seed)
    found = []
    for number, task in enumerate(GLUE):
        for _ in range(sizes[task]):
            words, answer = EXAMPLES[task](sentence(rng), rng)
            found.append((numbers_of([task, *words]), number, answer))
    order = rng.permutation(len(found))
    words, tasks, answers = zip(*(found[i] for i in order), strict=True)
    columns = (np.array(part, "int32")[:, None] for part in (tasks, answers))
    return Texts(np.array(words, "int32"), *columns)


def masked(count, seed):
    """Pairs of sentences with one word masked, to train an encoder."""
    rng = np.random.default_rng(seed)
    words, places, answers = [], [], []
    for _ in range(count):
        first = sentence(rng)
        second = first if rng.integers(2) else sentence(rng)
        text = numbers_of([rng.choice(GLUE), *first, "<sep>", *second])
        place = rng.choice([2, 3, 4, 6, 7, 10, 11, 12, 14, 15])
        answers.append([text[place]])
        text[place] = NUMBERS["<mask>"]
        words.append(text)
        places.append([place])
    return tuple(np.array(part, "int32") for part in (words, places, answers))


def numbers_of(words):
    """The numbers of words, padded."""
    found = [NUMBERS[word] for word in words]
    return found + [0] * (LENGTH - len(found))
