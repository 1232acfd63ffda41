#!/usr/bin/env python3
"""Writes docs/benchmark from what the driver measured: results.json, results.md and plots.

    report.py NEW.json DIRECTORY

Workloads that were not part of the new run stay as they were, with their own date and commit.
"""
import json
import sys
from pathlib import Path
from statistics import median

from goals import Results, outcomes
from plots import draw_all


def merge(directory, new):
    path = directory / "results.json"
    document = json.loads(path.read_text()) if path.exists() else {"workloads": {}}
    for section in new["workloads"].values():
        section["machine"] = new["machine"]
        section["notes"] = new["notes"]
    document["workloads"].update(new["workloads"])
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return document


def number(value):
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) < 10 else f"{value:.1f}"


def goal_table(document):
    lines = ["| goal | measured | rounds | wanted | held |", "|---|---|---|---|---|"]
    for o in outcomes(document):
        held = "(a peer)" if o.peer else "(no goal)" if o.goal is None else "yes" if o.held else "**no**"
        wanted = "" if o.goal is None else f"{'≥' if o.at_least else '≤'} {number(o.goal)}"
        low, high = o.spread
        lines.append(f"| {o.what}{f' ({o.remark})' if o.remark else ''} | {number(o.value)} | {number(low)} to {number(high)} |"
                     f" {wanted} | {held} |")
    return lines


def detail_table(name, section):
    rows = [r for r in section["results"] if not isinstance(r["samples"][0], list)]
    lines = [f"### {name}", "", provenance(section), "", "| case | who | median | rounds | unit |", "|---|---|---|---|---|"]
    for r in rows:
        lines.append(f"| {r['case']} | {r['competitor']} | {number(median(r['samples']))} |"
                     f" {', '.join(number(s) for s in r['samples'])} | {r['unit']} |")
    return lines + [""]


def provenance(section):
    machine = section["machine"]
    versions = f"PostgreSQL {machine['postgresql']}, queue_jobs {machine['queue_jobs']}" + (f" ({machine['commit']})" if machine["commit"] else "")
    others = "; ".join(section["notes"])
    return (f"{section['at']}; {versions}{'; ' + others if others else ''}; {machine['processors']}, {machine['memory']}, {machine['system']};"
            f" rounds {section['parameters']['rounds']}, {section['parameters']['duration']} s each; load average before"
            f" it began {section.get('load', 'not known')}.")


def main():
    new, directory = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    document = merge(directory, new)
    results = Results(document)
    draw_all(results, directory)
    lines = ["# Results", "", "Written by `make bench`; [README.md](README.md) says what each line means.", ""] + goal_table(document)
    lines += ["", "## All figures", ""]
    for name, section in document["workloads"].items():
        if (directory / f"{name}.svg").exists():
            lines += [f"![{name}]({name}.svg)", ""]
        lines += detail_table(name, section)
    (directory / "results.md").write_text("\n".join(lines))
    print("\n".join(goal_table(document)))


if __name__ == "__main__":
    main()
