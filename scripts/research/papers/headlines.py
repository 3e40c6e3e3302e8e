"""Claims of the papers' abstracts, and the claims of our pages behind them."""

from research.engine.headlines import Headline
from research.papers import citations

ABSTRACTS = {
    citations.DSELECT_K: [
        Headline(
            "Top-k is not smooth, which can lead to problems of convergence.",
            {
                "dselectk-fig2-7-8": ("Top-k's weights oscillate",),
                "dselectk-fig6": ("Top-k has frequent jumps",),
            },
            "The claims are on jumps of the weights: on frozen experts, the Top-k that "
            "jumps finds most of the true ones.",
        ),
        Headline(
            "DSelect-k is continuously differentiable.",
            {"dselectk-fig4": ("The smooth step is",)},
        ),
        Headline(
            "It offers explicit control over the number of experts.",
            {
                "dselectk-fig5": ("Ablation (entropy) often selects",),
                "dselectk-table4": (
                    "On MovieLens with alpha 0.1, S(Z)",
                    "On MovieLens with alpha 0.5, S(Z)",
                ),
            },
            "At 128 tasks, with the paper's grid and at our length, its gates become "
            "binary if the tasks' losses are averaged, and not if they are summed.",
        ),
        Headline(
            "It is better in prediction and in the selection of experts than popular "
            "gates, on synthetic data with up to 128 tasks.",
            {
                "dselectk-fig2-7-8": ("DSelect-k recovers the true experts",),
                "dselectk-fig5": (
                    "DSelect-k has a lower test error than Top-k",
                    "DSelect-k has a higher Jaccard index of related tasks than Top-k",
                    "DSelect-k has a lower Jaccard index of unrelated tasks than Top-k",
                ),
            },
            "At 128 tasks its error is a third of Top-k's while its gates are not "
            "binary, and 22 times Top-k's where they are.",
        ),
        Headline(
            "The same on real data.",
            {
                "dselectk-table1-5": (
                    "For every alpha, one of the two DSelect-k gates",
                    "For every alpha, the same gate selects fewer",
                ),
                "dselectk-table2": (
                    "DSelect-k (static) is better than Top-k",
                    "DSelect-k (static) has the best accuracy",
                ),
            },
            "Runs of a Gumbel-softmax gate that uses no expert do not count.",
        ),
        Headline(
            "On a large-scale recommender, it improves predictive performance by over "
            "22 % over Top-k.",
            {"dselectk-fig3": ("DSelect-k improves predictive performance",)},
        ),
    ],
    citations.MMOE: [
        Headline(
            "The quality of common multi-task models is sensitive to how related the "
            "tasks are.",
            {"mmoe-fig3": ("The less related", "The trend is the same")},
            "In Figure 4, where all models are tuned, the shared bottom is the least "
            "sensitive.",
        ),
        Headline(
            "MMoE is better than the baselines when tasks are less related.",
            {"mmoe-fig4": ("If the correlation decreases", "Both MoE models are")},
        ),
        Headline(
            "Its structure makes it easier to train, whatever the data and the initial "
            "weights.",
            {"mmoe-fig5": ("At every correlation", "OMoE is as robust", "The lowest")},
        ),
        Headline(
            "It is better on a benchmark of binary classification.",
            {
                "mmoe-table1": (
                    "MMoE's mean is at most",
                    "MMoE's mean is above",
                    "MMoE's best run",
                ),
                "mmoe-table2": ("MMoE's mean is above", "MMoE's best run"),
            },
        ),
        Headline(
            "It is better in a large-scale recommender.",
            {"mmoe-table3": ("MMoE has the highest AUC", "MMoE has the highest R")},
            "The experiments with live traffic (Table 4) are not testable.",
        ),
    ],
    citations.SPECIALIZATION: [
        Headline(
            "Joint training does not guarantee an intuitive split and a good use of "
            "the experts, even on MNIST and FashionMNIST.",
            {
                "specialization-fig2-3": (
                    "MNIST: the original mixture",
                    "FMNIST + MNIST: the original mixture",
                    "FMNIST + MNIST: clothes and digits",
                )
            },
        ),
        Headline(
            "The attentive gate improves performance.",
            {
                "specialization-table2": ("The attentive gate has a lower error",),
                "specialization-table3": ("The attentive gate has a lower error",),
                "specialization-table7": ("With an attentive gate errors",),
            },
        ),
        Headline(
            "The attentive gate has a split of lower entropy.",
            {
                "specialization-table2": ("The attentive gate alone",),
                "specialization-table3": ("The attentive gate alone",),
            },
        ),
        Headline(
            "The regularization by data, L_s, improves the specialization of experts.",
            {
                "specialization-table2": (
                    "L_s has as high",
                    "L_s has a lower H_s",
                    "The attentive gate with L_s has a higher",
                ),
                "specialization-table3": (
                    "L_s has as high",
                    "L_s has a lower H_s",
                    "The attentive gate with L_s has a higher",
                ),
                "specialization-fig6-7": (
                    "15 experts: L_s uses fewer",
                    "10 experts: L_s uses fewer",
                ),
            },
        ),
    ],
    citations.SMEAR: [
        Headline(
            "Models with learned routing are often worse than heuristic routing.",
            {
                "smear-table3-small": ("Tag routing is more accurate",),
                "smear-table2-small": ("Estimators are often worse",),
            },
        ),
        Headline(
            "They are often worse than dense models with as many parameters.",
            {"smear-table3-small": ("Routers that are learned by gradient",)},
        ),
        Headline(
            "SMEAR does not cost significantly more than routing to one expert.",
            {
                "smear-fig2": (
                    "SMEAR takes about as many operations",
                    "T5-GLUE: SMEAR does not cost",
                    "ResNet-DomainNet: SMEAR does not cost",
                )
            },
            "Operations are counted; times on a GPU are not run.",
        ),
        Headline(
            "SMEAR is better than models that route by metadata.",
            {
                "smear-table3-small": ("SMEAR is more accurate than tag",),
                "smear-table2-small": ("SMEAR is better than tag",),
            },
        ),
        Headline(
            "SMEAR is better than models that learn routing by gradient estimation.",
            {
                "smear-table3-small": ("SMEAR is as good as all routers that are",),
                "smear-table2-small": ("SMEAR is as good as all routers that are",),
            },
        ),
        Headline(
            "The experts that SMEAR learns are specialized to a significant degree.",
            {
                "smear-fig3": ("SMEAR's experts specialize less",),
                "smear-table2-small": ("SMEAR's routing is sparse",),
            },
            "In our runs SMEAR's routing says less of the domain than that of other "
            "learned routers.",
        ),
    ],
}
