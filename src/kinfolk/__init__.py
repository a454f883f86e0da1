"""BERT and friends, one family. `kinfolk.load(folder_or_name)` gives a model with its verbs.

>>> import kinfolk
>>> kinfolk.__version__
'0.1.0'
"""

__version__ = "0.1.0"
