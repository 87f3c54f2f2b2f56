"""The estimator room: GPRegressor, its parameters, its files, its warnings.

It may import everything but the command line. Add here what people of scikit-learn touch.
"""
