"""The estimator room: GPRegressor, its parameters, its files, its warnings.

It may import everything but the command line. Add here what users of scikit-learn touch.
"""
