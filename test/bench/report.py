#!/usr/bin/env python3
"""Writes docs/benchmark from what the driver measured: results.json, results.md and plots.

    report.py NEW.json DIRECTORY

Workloads that were not part of the new run stay as they were, with their own date and commit.
"""
import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

from goals import Results, outcomes

COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#5f4b8b", "#8d8d8d")


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
        held = "(a peer)" if o.peer else "yes" if o.held else "**no**"
        low, high = o.spread
        lines.append(f"| {o.what}{f' ({o.remark})' if o.remark else ''} | {number(o.value)} | {number(low)} to {number(high)} |"
                     f" {'≥' if o.at_least else '≤'} {number(o.goal)} | {held} |")
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


def plot(directory, name, title, settings, blocks, command):
    """blocks: (title, rows of numbers or quoted words)."""
    if not shutil.which("gnuplot"):
        return
    data = "\n\n\n".join("\n".join(" ".join(str(v) for v in row) for row in rows) for _, rows in blocks)
    script = "\n".join([
        "set terminal svg size 900,500 dynamic background rgb 'white' font 'Helvetica,13'",
        f"set output '{directory / (name + '.svg')}'", f"set title \"{title}\"", "set grid ytics lc rgb '#dddddd'",
        "set key below noenhanced", "set yrange [0:*]", "set format y '%.0s%c'", settings, f"$data << EOD\n{data}\nEOD",
        "plot " + ", ".join(f"$data index {i} {command} lc rgb '{COLOURS[i % len(COLOURS)]}' lw 2 title \"{label}\""
                            for i, (label, _) in enumerate(blocks)), ""])
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def plot_over_time(directory, results, workload, title):
    blocks = []
    for key in results.keys(workload):
        if key[3] == "jobs/s by second":
            rates = results.samples[key][0]
            blocks.append((f"{key[2]}, {key[1].split(',')[0]}", list(enumerate(smooth(rates), 1))))
    if blocks:
        plot(directory, workload, title, "set xlabel 'seconds'\nset ylabel 'jobs/s'", blocks, "using 1:2 with lines")


def smooth(values, window=5):
    return [sum(values[max(0, i - window + 1):i + 1]) / len(values[max(0, i - window + 1):i + 1]) for i in range(len(values))]


def plot_bars(directory, results, workload, title, unit="jobs/s"):
    """Groups of bars, one group a case, one colour a competitor."""
    keys = [key for key in results.keys(workload) if key[3] == unit]
    cases = list(dict.fromkeys(key[1] for key in keys))
    names = list(dict.fromkeys(key[2] for key in keys))
    blocks = [(name, [(f'"{case}"', median(results.get(workload, case, name, unit)) if results.get(workload, case, name, unit) else 0)
                      for case in cases]) for name in names]
    if blocks:
        plot(directory, workload, title, "set style data histograms\nset style fill solid\nset boxwidth 0.9\n"
             "set xtics rotate by -25 noenhanced font ',10'\nset ylabel '" + unit + "'", blocks, "using 2:xtic(1)")


def main():
    new, directory = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    document = merge(directory, new)
    results = Results(document)
    for workload, title in (("enqueue", "Enqueue, one a transaction"), ("duplicates", "Deduplicated enqueue"), ("bulk", "Bulk enqueue"),
                            ("executors", "Executors and peers' workers"), ("claimants", "Claimants"), ("together", "Enqueue and drain together"),
                            ("size", "With large tables")):
        plot_bars(directory, results, workload, title)
    plot_over_time(directory, results, "held", "With a snapshot held open")
    plot_over_time(directory, results, "steady", "Steady load")
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
