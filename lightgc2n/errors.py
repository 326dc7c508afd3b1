"""One tree of errors a person can act on: each names the place, the expectation, the finding and the way out."""


class LightGC2NError(Exception):
    """Something the caller can mend; shown without a traceback."""

    exit_code = 2
    status = 400  # what the HTTP service answers


class DataError(LightGC2NError):
    """A log, a prepared dataset or a split is not what it should be."""


class SettingError(LightGC2NError):
    """A setting has an unknown name or a value out of its bounds."""


class OutputError(LightGC2NError):
    """A result cannot be written where it was asked for."""


class MissingExtraError(LightGC2NError):
    """A command needs a package that an optional extra installs."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed. Install it with: pip install 'lightgc2n[{extra}]'")


class ScoreError(LightGC2NError):
    """A model gave a score that cannot be ranked."""

    status = 500


class TrainingError(LightGC2NError):
    """A run of a plan has failed; the others are there."""

    exit_code = 1
    status = 500
