"""The papers, as the pages name them."""

DSELECT_K = "DSelect-k (Hazimeh et al., NeurIPS 2021)"
MMOE = "MMoE (Ma et al., KDD 2018)"
SPECIALIZATION = (
    "Improving Expert Specialization in Mixture of Experts (Krishnamurthy et al., 2023)"
)
SMEAR = "SMEAR (Muqeeth et al., 2023)"

LOGS = "the logs of a recommender"  # Private; `datasets.recommender_sim` stands in.
