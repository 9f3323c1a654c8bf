"""Evaluation: metrics of models on the clients' examples, and figures over clients."""
