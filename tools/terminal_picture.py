#!/usr/bin/env python3
"""Draws what a command printed as a terminal window, for the README.

usage: COMMAND 2>&1 | tools/terminal_picture.py "COMMAND AS SHOWN" > docs/images/NAME.svg
"""
import sys
import textwrap
from html import escape

COLUMNS, LINE, CHAR, LEFT, TOP = 100, 19, 8.0, 18, 52


def main():
    shown = sys.argv[1]
    lines = [("prompt", "$ " + shown)]
    for line in sys.stdin.read().rstrip("\n").split("\n"):
        table = line.startswith("  ")
        for part in textwrap.wrap(line, COLUMNS, replace_whitespace=False) or [""]:
            lines.append(("table" if table else "text", part))
    width = LEFT * 2 + round(COLUMNS * CHAR)
    height = TOP + LINE * len(lines) + 14
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        "<style>text{font:13.3px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        "fill:#d8dee9}.prompt{fill:#ff6b6b;font-weight:bold}.table{fill:#8fbcbb}</style>",
        f'<rect width="{width}" height="{height}" rx="10" fill="#1b1f27"/>',
        *(f'<circle cx="{22 + 20 * i}" cy="20" r="6" fill="{c}"/>' for i, c in enumerate(("#ff5f57", "#febc2e", "#28c840"))),
    ]
    for i, (kind, line) in enumerate(lines):
        out.append(f'<text class="{kind}" x="{LEFT}" y="{TOP + LINE * i}">{escape(line)}</text>')
    print("\n".join(out + ["</svg>"]))


main()
