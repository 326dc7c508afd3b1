"""Recommendations for accounts that several people share.

    import lightgc2n as lg

    data = lg.Dataset.from_frame(df, account="user_id", item="item_id", time="timestamp")
    run = lg.train(data, model="lightgc2n-plus", epochs=20)
    run.recommend("user42", k=10).to_frame()

docs/python.md is a tour. Names are imported when they are first used, so that each extra works alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightgc2n.api.comparison import Comparison as Comparison
    from lightgc2n.api.comparison import Evaluation as Evaluation
    from lightgc2n.api.comparison import compare as compare
    from lightgc2n.api.comparison import list_models as list_models
    from lightgc2n.api.dataset import Dataset as Dataset
    from lightgc2n.api.dataset import generate as generate
    from lightgc2n.api.recommending import Bundle as Bundle
    from lightgc2n.api.results import AccountPeople as AccountPeople
    from lightgc2n.api.results import Ownership as Ownership
    from lightgc2n.api.results import Recommendations as Recommendations
    from lightgc2n.api.run import Run as Run
    from lightgc2n.api.run import load as load
    from lightgc2n.api.run import train as train
    from lightgc2n.errors import DataError as DataError
    from lightgc2n.errors import LightGC2NError as LightGC2NError
    from lightgc2n.errors import MissingExtraError as MissingExtraError
    from lightgc2n.errors import OutputError as OutputError
    from lightgc2n.errors import ScoreError as ScoreError
    from lightgc2n.errors import SettingError as SettingError

__version__ = "0.1.0"

_NAMES = {
    "api.comparison": ("Comparison", "Evaluation", "compare", "list_models"),
    "api.dataset": ("Dataset", "generate"),
    "api.recommending": ("Bundle",),
    "api.results": ("AccountPeople", "Ownership", "Recommendations"),
    "api.run": ("Run", "load", "train"),
    "errors": ("DataError", "LightGC2NError", "MissingExtraError", "OutputError", "ScoreError", "SettingError"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
__all__ = ["__version__", *_MODULE_OF]


if not TYPE_CHECKING:  # a type checker would take any name for one that exists

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
