"""What the samples are judged by: loops in a text, and whether an answer names what was asked for."""
import re

PROMPTS = """
Once upon a time|There was once a king|In a deep forest|One day the fox|The old woman said
|Long ago, in a far country|The little girl|A poor fisherman|When the princess|Far away in the land
|The wolf|There lived once|Early in the morning|The prince rode|At last the giant|In the castle
|The youngest son|A certain merchant|"Come here," said|The mermaid|Once there was a tailor
|Dorothy looked|The rabbit|In winter, when the snow
""".replace("\n", "").split("|")
THINGS = """
fox crow wolf bear king princess dragon witch giant mouse cat tailor fisherman mermaid prince
soldier rabbit goose queen frog lion dwarf troll donkey miller owl horse raven shoemaker ship
""".split()


def repeats(text, n=6):
    """(runs of n words that occurred before in the text, all its runs of n words)"""
    words = re.findall(r"[A-Za-z']+", text.lower())
    runs = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return len(runs) - len(set(runs)), len(runs)


def names(text, thing):
    """Does the text name the thing, one or several of it?"""
    text = text.lower().replace("mice", "mouse").replace("geese", "goose").replace("wolves", "wolf").replace(
        "dwarves", "dwarf")
    return re.search(r"\b%s(s|es)?\b" % thing, text) is not None
