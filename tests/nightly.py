"""What nightly jobs measured, kept as rows of JSON, and one page that shows all of it over time.

``--rows FILE`` of `tests.campaigns`, `tests.mutation` and both benchmarks appends rows, and
``python -m tests.nightly run --rows FILE NAME COMMAND`` a row that says whether a command held.
``python -m tests.nightly page FOLDER HISTORY --out PAGE`` appends a night's rows to those of all
nights and draws the page: a line per measurement with its last value, the nights on which it held,
and a picture of its values. ``make night`` and ``make nightly`` do both.
"""

import argparse
import datetime as dt
import html
import json
import math
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
_WIDTH, _HEIGHT, _EDGE = 160, 28, 3
_STYLE = """
body {font: 14px sans-serif; margin: 2em} td, th {padding: 2px 10px; text-align: left}
td.figure {text-align: right; font-variant-numeric: tabular-nums} tr.broken {background: #fdd}
th {border-bottom: 1px solid #888} polyline {fill: none; stroke: #36c; stroke-width: 1.5}
"""


def commit():
    """The first digits of the commit of this checkout; empty if there is none."""
    asked = ["git", "rev-parse", "--short=10", "HEAD"]
    try:
        done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def keep(path, target, rows, night=None):
    """Append rows of a target.

    Parameters
    ----------
    path : Path or None
        File; nothing is kept if None.
    target : str
        Make target, such as ``campaigns``.
    rows : list of tuple
        Name, value or None, unit, and whether what is claimed held.
    night : str, optional
        Date; today's if omitted, in UTC.
    """
    if path is None:
        return
    night = night or dt.datetime.now(dt.UTC).date().isoformat()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for name, value, unit, held in rows:
            finite = value is not None and math.isfinite(value)
            row = {"night": night, "commit": commit(), "target": target, "name": name}
            row |= {"value": value if finite else None, "unit": unit, "held": bool(held)}
            file.write(json.dumps(row) + "\n")


def series(path):
    """Rows of a file by target and name, one per night: of several, the last one.

    Raises
    ------
    ValueError
        If a line is no row; it names file and line.
    """
    by_name = defaultdict(dict)
    for k, text in enumerate(path.read_text().splitlines(), 1):
        try:
            row = json.loads(text)
            by_name[row["target"], row["name"]][row["night"]] = row
            _ = row["value"], row["unit"], row["held"], row["commit"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path.name}, line {k} is no row of a night: {text[:60]}") from None
    return {
        key: [nights[night] for night in sorted(nights)] for key, nights in sorted(by_name.items())
    }


def picture(rows):
    """Values over the nights as SVG, with a dot where a claim did not hold."""
    values = [(k, row["value"]) for k, row in enumerate(rows) if row["value"] is not None]
    if not values:
        values = [(k, float(row["held"])) for k, row in enumerate(rows)]
    low, high = min(v for _, v in values), max(v for _, v in values)
    by_night = dict(values)

    def point(k, v):
        x = _EDGE + (_WIDTH - 2 * _EDGE) * (k / (len(rows) - 1) if len(rows) > 1 else 0.5)
        share = (v - low) / (high - low) if high > low else 0.5
        return f"{x:.1f},{_HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * share:.1f}"

    line = " ".join(point(k, v) for k, v in values)
    dots = []
    for k, row in enumerate(rows):
        if not row["held"] or len(rows) == 1:
            x, y = point(k, by_night.get(k, low)).split(",")
            color = "#36c" if row["held"] else "#c00"
            dots.append(f'<circle cx="{x}" cy="{y}" r="2.5" fill="{color}"/>')
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{len(rows)} nights">'
        f'<polyline points="{line}"/>{"".join(dots)}</svg>'
    )


def page(by_name):
    """The page: what did not hold last night first, then a table per target."""
    nights = sorted({row["night"] for rows in by_name.values() for row in rows})
    last = nights[-1] if nights else "none"
    broken = [
        f"{target}: {name}"
        for (target, name), rows in by_name.items()
        if rows[-1]["night"] == last and not rows[-1]["held"]
    ]
    said = "; ".join(broken) or "every claim held"
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>dpcvx, night by night</title>',
        f"<style>{_STYLE}</style><h1>dpcvx, night by night</h1>",
        f"<p>{len(nights)} nights, the last one {last}: {html.escape(said)}.</p>",
    ]
    for target in dict.fromkeys(target for target, _ in by_name):
        parts.append(
            f"<h2>{html.escape(target)}</h2><table><tr><th>measurement</th><th>last value</th>"
            "<th>unit</th><th>held</th><th>last night</th><th>commit</th><th>over time</th></tr>"
        )
        for (of, name), rows in by_name.items():
            if of != target:
                continue
            end, held = rows[-1], sum(row["held"] for row in rows)
            value = "" if end["value"] is None else f"{end['value']:.6g}"
            cells = [html.escape(str(text)) for text in (name, value, end["unit"])]
            parts.append(
                f"<tr{'' if end['held'] else ' class=broken'}><td>{cells[0]}</td>"
                f"<td class=figure>{cells[1]}</td><td>{cells[2]}</td>"
                f"<td class=figure>{held} of {len(rows)}</td><td>{end['night']}</td>"
                f"<td>{html.escape(end['commit'])}</td><td>{picture(rows)}</td></tr>"
            )
        parts.append("</table>")
    return "\n".join([*parts, "</html>\n"])


def main(arguments=None):
    """Keep a row of a command, or draw the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    does = parser.add_subparsers(required=True, dest="what")
    run = does.add_parser("run", help="run a command, and keep whether it held")
    run.add_argument("--rows", type=Path, required=True)
    run.add_argument("name")
    run.add_argument("command", nargs=argparse.REMAINDER)
    draw = does.add_parser("page", help="draw the page")
    draw.add_argument("new", type=Path, help="folder with rows of a night")
    draw.add_argument("history", type=Path, help="file with rows of all nights before")
    draw.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    if asked.what == "run":
        code = subprocess.run(asked.command, check=False).returncode
        keep(asked.rows, asked.name, [("exit code", float(code), "", code == 0)])
        return code
    new = "".join(path.read_text() for path in sorted(asked.new.rglob("*.jsonl")))
    for path in (asked.history, asked.out):
        path.parent.mkdir(parents=True, exist_ok=True)
    with asked.history.open("a") as file:
        file.write(new)
    asked.out.write_text(page(series(asked.history)))
    print(asked.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
