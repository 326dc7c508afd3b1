"""`lightgc2n doctor`: show installed packages, whether they work, and the devices."""

import typer
from rich.table import Table

from lightgc2n.cli.options import Json
from lightgc2n.cli.printing import print_json, print_table


def doctor(json: Json = False) -> None:
    """Show which packages are installed, whether they work, and which devices are available."""
    from lightgc2n.diagnosis import diagnose

    diagnosis = diagnose()
    if json:
        print_json(diagnosis)
        return
    version = f"lightgc2n {diagnosis['lightgc2n']}, Python {diagnosis['python']}"
    typer.echo(f"{version}, {diagnosis['system']}, {diagnosis['cores']} cores")
    table = Table(title="extras")
    for heading in ("extra", "package", "needs", "installed", "works"):
        table.add_column(heading)
    for extra, packages in diagnosis["extras"].items():
        for package, facts in packages.items():
            works = "yes" if facts["works"] else facts["problem"] or "no"
            table.add_row(extra, package, facts["needs"], facts["version"] or "-", works)
    print_table(table)
    for device in diagnosis["devices"]:
        typer.echo(f"device {device['name']}: {device['what']}: {'works' if device['works'] else device['problem']}")
    for advice in diagnosis["advice"]:
        typer.echo(advice)
