"""The files room: one format for models and checkpoints, written whole or not at all; logs; checks of paths.

It may import everything that is trained and planned, but not the estimator. What a model file holds is beside the
estimator (:mod:`warmgp.estimator.model_file`); what a checkpoint holds is here. Add another kind of file with a content
check of its own over :mod:`warmgp.files.format`.
"""
