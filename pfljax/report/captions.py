"""What the figures of one run show, in words."""

from pfljax.report.key_figures import model_text
from pfljax.report.runs import Run, find_records

CAPTIONS = {
    "learning_curves": "Test accuracy and loss along the run: mean over all clients; "
    "the band spans the 10th to the 90th percentile of clients. The dotted line marks "
    "the round chosen on validation data; training loss is the mean of each round's "
    "participants.",
    "accuracy_histogram": "Test accuracy of each client at the last round; lines mark "
    "the means over clients.",
    "accuracy_by_client": "The same accuracies client by client, from the worst to the "
    "best off; a line joins the two models of a client where clients are few.",
    "label_distribution": "Rows of each class that each client holds.",
    "quantities_by_size": "What the method tells of each client at the last round, by "
    "the client's training rows, with Spearman's rank correlation.",
    "accuracy_by_seconds": "The same accuracy over virtual seconds, which follow from "
    "bytes, local steps and the devices' profile; nothing was measured.",
    "timeline": "Who was busy when, in the first rounds, of turns that ended: a lane a "
    "client, a bar from the download to the arrival of the upload; vertical lines end "
    "the rounds. Turns in orange ended with the deadline and did not report.",
    "lambda_curve": "Accuracy of the mixture (1 - λ) federated + λ local at the last "
    "round: mean over clients; the band spans the 10th to the 90th percentile of "
    "clients on test rows. The dotted line is the test mean with λ chosen by each "
    "client on its validation rows.",
}
LANDSCAPES = {
    "line": "Test accuracy along the straight line between the two models of each "
    "client: mean over clients; the band spans the 10th to the 90th percentile of "
    "clients. All metrics of every client: landscape/line.npz.",
    "other": "Test accuracy along the straight line from each client's personal model "
    "here (0) to its personal model of another run (1): mean over clients; the band "
    "spans the 10th to the 90th percentile of clients.",
    "pairs": "Between the personal models of all pairs of clients: the barrier of the "
    "loss on the test rows of both (its excess over the straight line between the "
    "ends), and the cosine of the angle between the parameters.",
    "plane": "Loss of all test rows around the server's model, along two random "
    "directions normalised filter by filter.",
    "plane_surface": "The same plane as a surface.",
    "hessian": "Loss of all test rows around the server's model, along the two leading "
    "eigenvectors of the training loss's Hessian, each a tenth as long as the model.",
    "curvature": "How sharp each client's personal model is on its own training rows: "
    "the greatest eigenvalue of the Hessian, its trace, and how much the loss rises "
    "within a ball of radius .05 (SAM), each from the least to the greatest.",
    "hessian_surface": "The same plane as a surface.",
    "hessian_spectrum": "Density of the eigenvalues of the training loss's Hessian at "
    "the server's model; short lines: the two greatest.",
    "training": "Barriers on the straight line from the server's model of each kept "
    "round to its last one, on all test rows.",
    "training_plane": "The server's way through the plane of its two principal "
    "directions: loss of all test rows; marks are rounds.",
}


def caption(name: str, run: Run) -> str:
    """What a figure shows, and at which moment its models were judged."""
    if name not in ("learning_curves", "accuracy_histogram"):
        return CAPTIONS[name]
    evaluations = run.summary["last"]["evaluations"]
    moments = {}
    for record in find_records(evaluations, split="test", clients="all"):
        judged = f"{model_text(record)}, {record['when']}"
        # The first record of a model is the one of per_client.npz.
        moments.setdefault(record["model"], judged)
    texts = "; ".join(moments.values())
    return f"{CAPTIONS[name]} Judged: {texts}."


def landscape_caption(kind: str) -> str:
    """What a figure of `pfljax landscape` shows."""
    unknown = f"The {kind} of the run, as `pfljax landscape` drew it."
    return LANDSCAPES.get(kind, unknown)
