"""`lightgc2n doctor`: what is installed, what works, which devices there are."""

import typer
from rich.table import Table

from lightgc2n.cli.options import Json
from lightgc2n.cli.printing import print_json, print_table


def doctor(json: Json = False) -> None:
    """Show what is installed, what works, and which devices there are."""
    from lightgc2n.diagnosis import diagnose

    found = diagnose()
    if json:
        print_json(found)
        return
    typer.echo(f"lightgc2n {found['lightgc2n']}, Python {found['python']}, {found['system']}, {found['cores']} cores")
    table = Table(title="extras")
    for heading in ("extra", "package", "needs", "found", "works"):
        table.add_column(heading)
    for extra, packages in found["extras"].items():
        for package, facts in packages.items():
            works = "yes" if facts["works"] else facts["problem"] or "no"
            table.add_row(extra, package, facts["needs"], facts["version"] or "-", works)
    print_table(table)
    for device in found["devices"]:
        typer.echo(f"device {device['name']}: {device['what']}: {'works' if device['works'] else device['problem']}")
    for advice in found["advice"]:
        typer.echo(advice)
