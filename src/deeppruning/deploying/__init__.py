"""Deployment: a network in the form used for inference, without what only training needs.

Read in this order: `deploy` (the call, and the proof), `steps` (what can go, and how); `onnx_graph` is
about ONNX.
"""

from deeppruning.deploying.deploy import Deployment, deploy, deployed

__all__ = ["Deployment", "deploy", "deployed"]
