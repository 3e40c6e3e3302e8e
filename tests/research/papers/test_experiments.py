"""Every experiment runs at the smoke preset, and has something to show."""

import json
import math

import pytest
from matplotlib import pyplot as plt

from research.engine import Results, pages, reproduce
from research.engine.template import VERDICTS, fill_template
from research.papers import EXPERIMENTS

# Some look at the same runs.
SHARED = {}
for _name, _kind in EXPERIMENTS.items():
    SHARED.setdefault(_kind.presets()["smoke"].source, []).append(_name)
# The others run one, because JAX compiles and TensorFlow traces every model.
EVERYWHERE = {"mmoe-fig3": pytest.mark.every_backend}


@pytest.mark.parametrize(
    "source",
    [pytest.param(each, marks=EVERYWHERE.get(each, ())) for each in SHARED],
)
def test_smoke_runs_and_reports(source, tmp_path):
    for name in SHARED[source]:
        experiment = EXPERIMENTS[name].presets()["smoke"]
        results = reproduce(experiment, preset="smoke", folder=tmp_path, progress=False)
        assert {run.arm for run in results.runs} == set(experiment.arms)
        for arm in experiment.arms:
            assert len(results.of(arm)) == experiment.seeds
        # The file has the same runs, and gives the same page.
        again = Results(experiment, "smoke", tmp_path)
        assert again.runs == results.runs
        report = fill_template(again)
        assert report.claims
        text = pages.page(again, report)
        assert VERDICTS[report.verdict] in text
        assert "nan" not in text.lower().replace("domainnet", "")
        for picture in report.pictures:
            figure = picture.draw()
            assert figure.axes
            plt.close(figure)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_presets_and_words_are_whole(name):
    kind = EXPERIMENTS[name]
    assert name.startswith(("dselectk-", "mmoe-", "specialization-", "smear-"))
    assert kind.where
    assert kind.title
    presets = kind.presets()
    assert list(presets) == ["smoke", "cpu", "paper"]
    for experiment in presets.values():
        assert experiment.data_dir is None
        assert json.loads(json.dumps(experiment.config)) == experiment.config
        # A search may not ask for more than the largest grid has. Smaller grids, such
        # as that of a gate without settings of its own, are tried in full.
        spaces = [experiment.space(arm) for arm in experiment.arms]
        sizes = [math.prod(map(len, space.values())) for space in spaces if space]
        if sizes and experiment.sampler == "random":
            assert 0 < experiment.trials <= max(sizes)
    assert not presets["cpu"].stand_in
    assert not presets["paper"].stand_in
