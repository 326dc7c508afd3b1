"""`lightgc2n serve`: a bundle behind HTTP, and a page to look into accounts."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lightgc2n.cli.options import Json
from lightgc2n.cli.printing import print_json


def serve(
    bundle: Annotated[
        Path,
        typer.Argument(metavar="BUNDLE", help="A bundle (made by export), or a link to one, which may be swapped."),
    ],
    host: Annotated[str, typer.Option(help="Where to listen; other than this machine only with a key.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes that answer.")] = 1,
    api_key_file: Annotated[
        Path | None, typer.Option("--api-key-file", metavar="FILE", help="Keys of those who may ask, one a line.")
    ] = None,
    listen_without_key: Annotated[
        bool, typer.Option("--listen-without-key", help="Answer others without a key: something else keeps them out.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", exists=True, dir_okay=False, help="A report.html that the page shows."
        ),
    ] = None,
    titles: Annotated[
        Path | None, typer.Option("--titles", metavar="FILE", help="What items are called: id, tab, title a line.")
    ] = None,
    log_ids: Annotated[
        bool, typer.Option("--log-ids", help="Let logs say which account and item was asked for.")
    ] = False,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="Pages of this origin may ask; may be repeated."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="Answer to this name too; may be repeated. '*': to every name.",
        ),
    ] = None,
    max_body: Annotated[int, typer.Option("--max-body", metavar="BYTES", min=1, help="Of a request.")] = 2**21,
    max_k: Annotated[int, typer.Option("--max-k", min=1, help="Items of one list.")] = 1000,
    max_history: Annotated[int, typer.Option("--max-history", min=1, help="Events of one history.")] = 5000,
    max_requests: Annotated[
        int, typer.Option("--max-requests", min=1, help="Requests that a worker works on at once; more get 429.")
    ] = 256,
    seconds: Annotated[float, typer.Option(help="For a request to arrive and its answer to begin; then 503.")] = 10.0,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=VALUE", help="Any limit of docs/serving.md; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Serve a bundle over HTTP, with a page at /; ends after SIGTERM or Ctrl-C when what was asked is answered."""
    from lightgc2n.config import read_settings
    from lightgc2n.serving.settings import Limits, ServiceSettings, parse_limits, read_keys, refuse_open_door
    from lightgc2n.serving.workers import address, reserve
    from lightgc2n.serving.workers import serve as run

    given: dict[str, Any] = {"max_body": max_body, "max_k": max_k, "max_history": max_history}
    given |= {"max_requests": max_requests, "seconds": seconds, **parse_limits(limit or ())}
    limits = read_settings(Limits, given, "serve --limit")
    settings = ServiceSettings(
        bundle=bundle,
        host=host,
        port=port,
        workers=workers,
        key_digests=read_keys(api_key_file) if api_key_file else (),
        listen_without_key=listen_without_key,
        report=report,
        titles=titles,
        log_ids=log_ids,
        cors=tuple(cors or ()),
        allow_hosts=tuple(allow_host or ()),
        limits=limits,
    )
    refuse_open_door(settings)
    with reserve(settings) as listening:

        def ready() -> None:
            if json:
                print_json({"address": address(listening), "bundle": str(bundle), "workers": workers})
            else:
                typer.echo(f"serving {bundle} at {address(listening)}; stop with Ctrl-C")

        run(settings, listening, ready)
