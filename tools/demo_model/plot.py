"""Draw the loss curves of training_log.csv as an SVG file (needs nothing but Python).

usage: plot.py training_log.csv OUT.svg
"""
import csv
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 60, 150, 30, 50
X_MAX, Y_MIN, Y_MAX = 23.0, 2.9, 3.9
STYLES = {"long": ("#b0b0b0", "first attempt"), "t": ("#4a7ebb", "teachers"),
          "student": ("#c0392b", "student"), "polished": ("#27803b", "polished")}


def x_at(epochs):
    return LEFT + (WIDTH - LEFT - RIGHT) * epochs / X_MAX


def y_at(loss):
    return TOP + (HEIGHT - TOP - BOTTOM) * (Y_MAX - loss) / (Y_MAX - Y_MIN)


def read(path):
    """{run: [(epochs, validation loss), ...]}; the polished run begins where the student ends."""
    runs = {}
    with open(path) as f:
        for row in csv.DictReader(f):
            runs.setdefault(row["run"], []).append((float(row["epochs"]), float(row["val_loss"])))
    if "student" in runs and "polished" in runs:
        end = runs["student"][-1]
        runs["polished"] = [end] + [(end[0] + e, v) for e, v in runs["polished"]]
    return runs


def style(run):
    return STYLES.get(run) or STYLES[run.rstrip("0123456789")]


def text(x, y, words, anchor="middle", more=""):
    return '<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>' % (x, y, anchor, more, words)


def svg(runs):
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d"' % (WIDTH, HEIGHT),
           ' font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="#ffffff"/>',
           text(LEFT, 18, "Validation loss (nats a token) by epochs of the text", "start", ' font-size="14"')]
    for i in range(11):
        loss = Y_MIN + i * (Y_MAX - Y_MIN) / 10
        out.append('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e4e4e4"/>'
                   % (LEFT, y_at(loss), WIDTH - RIGHT, y_at(loss)))
        out.append(text(LEFT - 8, y_at(loss) + 4, "%.1f" % loss, "end"))
    for epochs in range(0, int(X_MAX) + 1, 2):
        out.append(text(x_at(epochs), HEIGHT - BOTTOM + 18, epochs))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "epochs"))
    shown = {}
    for run, points in sorted(runs.items(), key=lambda item: list(STYLES).index(
            item[0] if item[0] in STYLES else item[0].rstrip("0123456789"))):
        color, label = style(run)
        inside = [(e, v) for e, v in points if v <= Y_MAX and e <= X_MAX]
        out.append('<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>'
                   % (color, " ".join("%.1f,%.1f" % (x_at(e), y_at(v)) for e, v in inside)))
        shown[label] = color
    for i, (label, color) in enumerate(shown.items()):
        y = TOP + 12 + 20 * i
        out.append('<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="3"/>'
                   % (WIDTH - RIGHT + 10, y, WIDTH - RIGHT + 32, y, color))
        out.append(text(WIDTH - RIGHT + 38, y + 4, label, "start"))
    return "\n".join(out + ["</svg>", ""])


if __name__ == "__main__":
    with open(sys.argv[2], "w") as f:
        f.write(svg(read(sys.argv[1])))
