"""`lightgc2n forget`: an account is taken out of a dataset and a bundle."""

from pathlib import Path
from typing import Annotated

import typer

from lightgc2n.cli.options import Json
from lightgc2n.cli.printing import print_json
from lightgc2n.errors import DataError, SettingError
from lightgc2n.progress import say


def forget(
    account: Annotated[str, typer.Argument(metavar="ACCOUNT", help="The id of the account.")],
    data: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="A prepared dataset that has it.")] = None,
    bundle: Annotated[Path | None, typer.Option("--bundle", metavar="BUNDLE", help="A bundle that has it.")] = None,
    json: Json = False,
) -> None:
    """Take an account out of a dataset, a bundle or both, with all it did; what is left replaces the old folder.

    What a model has learned from all accounts together stays as it is: train anew on the dataset to undo that too.
    """
    if data is None and bundle is None:
        raise SettingError("nothing to forget it in. Give --data DIR, --bundle BUNDLE or both.")
    from lightgc2n.data.forgetting import dataset_holds, forget_in_dataset
    from lightgc2n.recommending.forgetting import bundle_holds, forget_in_bundle

    # Both are looked at before either is changed; where it is gone already, as after a broken try, only one is.
    in_data = data is not None and dataset_holds(data, account)
    in_bundle = bundle is not None and bundle_holds(bundle, account)
    if not in_data and not in_bundle:
        raise DataError(f"{' and '.join(str(one) for one in (data, bundle) if one)}: no account {account!r} is there.")
    found = {str(one): "it is not there" for one in (data, bundle) if one is not None}
    if data is not None and in_data:
        found[str(data)] = f"forgotten; the dataset now has checksum {forget_in_dataset(data, account)['checksum']}"
    if bundle is not None and in_bundle:
        forget_in_bundle(bundle, account)
        found[str(bundle)] = "forgotten"
    if json:
        print_json(found)
    else:
        for place, what in found.items():
            typer.echo(f"{place}: {what}")
    if data is not None:
        say("Runs trained on the old dataset still know the account: train anew, and remove them.")
