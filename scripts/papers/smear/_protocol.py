"""The protocol of the paper's ResNet-DomainNet setting, beside ours."""

from experiments import Fact

LATENT_SKILLS = Fact(
    "Latent Skills",
    "learning rate of the skills 10 times the others', the best of {1, 10, 100} "
    "(Appendix B)",
    "10 times; not tuned",
)


def facts(kind):
    """The facts of the paper's protocol.

    Args:
        kind: A subclass of `DomainComparison`.

    Returns:
        A list of `Fact`.
    """
    presets = {name: kind.presets()[name] for name in ("cpu", "paper")}
    shared = {name: preset.shared for name, preset in presets.items()}

    def here(template):
        """The same text for both presets, or one for each."""
        texts = {n: template(p) for n, p in presets.items()}
        if len(set(texts.values())) == 1:
            return texts["cpu"]
        return "; ".join(f"{name}: {text}" for name, text in texts.items())

    def network(p):
        if p.backbone:
            return f"`{p.backbone}` of KerasHub, trained on ImageNet, frozen"
        return (
            f"the same blocks with {p.width} channels in the first stack, behind a "
            f"stem for small images, trained on {p.num_digits:,} handwritten digits "
            f"for {p.digit_epochs} epochs, frozen"
        )

    steps = "; ".join(f"{n}: {s.num_steps:,}" for n, s in shared.items())
    return [
        Fact(
            "data",
            "DomainNet: pictures of 345 classes in six domains (Section 4)",
            "Fashion-MNIST: ten classes, each image in one of six styles",
            "It can be learned on a CPU. `papers.data.domainnet` reads DomainNet, but "
            "these presets keep the features of all images in memory, for which it is "
            "too large.",
        ),
        Fact(
            "training and test images",
            "all of the six domains (Appendix B.2); the paper gives no numbers",
            here(lambda p: f"{p.num_train:,} and {p.num_test:,} per domain"),
            "The size of Fashion-MNIST; cpu: time.",
        ),
        Fact(
            "frozen network",
            "ResNet18, trained on ImageNet (Section 4)",
            here(network),
            "cpu: time. The release's ResNet18 normalizes by the statistics of the "
            "batch in training, although it is frozen; ours by those it was trained "
            "with.",
        ),
        Fact(
            "size of the images",
            "not in the paper; 224 x 224 in the release",
            here(lambda p: "56 x 56, enlarged" if p.backbone else "28 x 28"),
            "The size of Fashion-MNIST.",
        ),
        Fact(
            "places with experts",
            "after all eight residual blocks (Section 4)",
            here(lambda p: f"the last {p.num_adapters} of 8 blocks"),
            "cpu: time. The release adapts the sum before the block's activation, and "
            "so do we.",
        ),
        Fact(
            "experts per place",
            "6, one for each domain; 12 for SMEAR 2x (Section 4)",
            here(lambda p: f"{p.num_experts}; {2 * p.num_experts} for SMEAR 2x"),
        ),
        Fact(
            "experts",
            "adapters with swish (Appendix B.2); width 32 in the release",
            here(lambda p: f"the same, of width {p.units}"),
            "cpu: narrow as the network is. Kernels start from N(0, 0.01^2), as in the "
            "release. The second layer has a bias here, and none in the release.",
        ),
        Fact(
            "batch normalization",
            "of the experts' input (Section 4)",
            "one in each place, before all experts and the router",
            "As in the release. The paper does not say whether experts share it.",
        ),
        Fact(
            "augmentation",
            "not in the paper; the release crops and flips at random",
            "none",
            "The features of all images are computed once.",
        ),
        Fact(
            "router",
            "linear without bias, with layer normalization of its input, the mean over "
            "all positions, and of the kernel (Section 4)",
            "the same; DSelect-k: with a bias, and without normalization of the kernel",
            "As in the release, but there DSelect-k has no bias.",
        ),
        Fact(
            "expert dropout",
            "0.1 for SMEAR and Top-k, none for ST-Gumbel and REINFORCE (Appendix C); "
            "not given for the others",
            "the same; 0.1 for SMEAR 2x; none for the others",
        ),
        Fact("load balancing", "none (Section 4)", "none"),
        Fact(
            "optimizer",
            "Adam, learning rate 0.001, no warm-up (Appendix B.2)",
            here(lambda p: f"Adam, learning rate {p.learning_rate:g}, no warm-up"),
            "cpu: fewer steps. The release also clips gradients, we do not.",
        ),
        Fact(
            "steps and batch",
            "100,000 steps of 128 images (Appendix B.2)",
            f"{steps} steps of {presets['cpu'].batch_size} images",
            "cpu: time; paper: whole epochs.",
        ),
        Fact(
            "Top-k",
            "k = 1, the expert scaled by its probability (Section 2)",
            "`SwitchGate`: the same",
        ),
        Fact(
            "ST-Gumbel",
            "temperature 10, annealed at a rate of 1e-4, the best of {1, 10} and "
            "{1e-4, 1e-5, 1e-6} (Appendix B.2)",
            "from 10 to 0.5, the release's minimum, in 0.3 of the steps, as with that "
            "rate in 100,000 steps; not tuned",
            "The decay is scaled to the length of the run. In the release each "
            "evaluation multiplies the temperature by the decay since the first step, "
            "so that it is 0.5 after 0.08 of the steps.",
        ),
        Fact(
            "REINFORCE",
            "weights 0.01, 0.0005 and 0.01 of policy, entropy and value (Appendix B)",
            "the same",
        ),
        Fact(
            "DSelect-k",
            "one selector (Section 2); entropy weight 0.1, the best of {0.01, 0.1, 1} "
            "(Appendix B.2)",
            "the same weight, also of the reachability term, as in the release; not "
            "tuned",
        ),
        LATENT_SKILLS,
        Fact(
            "Adamix",
            "random routing, a consistency loss (Section 2), the general settings of "
            "Appendix B.2",
            "the same; weight 1 of the consistency loss, as in the release",
        ),
        Fact("Soft MoE", "one slot per expert (Section 2)", "the same"),
        Fact(
            "which step is reported",
            "not in the paper; the release takes the best validation accuracy",
            "the last step",
            "No validation images are set aside.",
        ),
        Fact(
            "seeds",
            "5, with standard deviations (Figure 2); 1 in Table 1",
            here(lambda p: f"{p.seeds}, with standard errors"),
        ),
        Fact(
            "metric",
            "accuracy of each domain, and a final accuracy, which is not their mean "
            "(Table 3)",
            "accuracy of each domain, and of all test images",
            "The final accuracy is that of all test images in the release. Here all "
            "domains have as many, so that it is the mean.",
        ),
    ]
