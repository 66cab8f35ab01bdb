"""Requests to which a stretch of a tale would be an answer: wordings, and the nouns they may name.

A request names only what the stretch itself names early, so that an answer keeps to its request.
"""
import collections
import re

WITH_TITLE = ["Tell me the tale of {t}.", "Tell me the story of {t}, please.", "Do you know the tale of {t}?",
              "I should like to hear the story of {t}.", "Please tell me about {t}.",
              "Can you tell me {t}?", "{T}"]
WITH_NOUN = ["Tell me a story about {n}.", "Tell me a story about {n}.", "Tell me a story about {n}.",
             "Tell me a fairy tale about {n}.", "Please tell me a tale of {n}.", "Tell me about {n}.",
             "Can you tell me a story with {n} in it?", "Write a story about {n}.",
             "A story about {n}, please!", "tell me a story about {n}", "I want to hear about {n}.",
             "Make up a tale about {n}."]
PLAIN = ["Tell me a story.", "Tell me a fairy tale.", "Please tell me a bedtime story.", "Hello!", "Hi",
         "Hello, who are you?", "Tell me a tale, please.", "Once upon a time", "What can you do?",
         "I cannot sleep. Will you tell me a story?"]
SYSTEM = ["You are a teller of fairy tales.", "You are a helpful assistant.", "You tell stories to children."]
GO_ON = ["Go on.", "Go on, please.", "What happened next?", "And then?", "Please go on with the tale.",
         "Continue.", "And what happened after that?", "Tell me more.", "continue", "more"]
COUNT = 4  # requests for each opening

PLAIN_NOUNS = set("gold silver snow winter treasure bread milk honey water money fire Christmas".split())
THE_NOUNS = set("sea sun moon wind sky world forest".split())
ADJECTIVES = set("little old poor young white black golden great wicked beautiful big wise clever brave rich "
                 "magic huge ugly lazy tiny".split())
NOUNS = set("""
king queen prince princess castle palace tower forest wood giant dwarf witch wizard magician fairy dragon
troll goblin ogre mermaid wolf fox bear lion tiger rabbit hare mouse cat dog horse donkey goat sheep pig
cow hen cock duck goose swan crow raven owl eagle nightingale sparrow frog toad snake fish bee spider ant
butterfly squirrel beaver raccoon elephant monkey crocodile miller tailor shoemaker soldier fisherman
woodcutter huntsman farmer merchant shepherd beggar thief robber blacksmith sailor captain nurse
stepmother grandmother grandfather mother father brother sister daughter son boy girl child baby woman man
ring crown sword ship boat sea river lake well mountain island garden rose apple tree bird treasure gold
silver mirror shoe slipper cloak carpet lamp doll toy snow winter moon star sun wind Christmas school
train scarecrow emperor sultan caliph bride wedding angel army axe bag baker balcony ball balloon bargain
barn barrel basket battle beach bed beetle bone bottle bow bowl box branch bread bridegroom bridge brook
bucket bush butcher cage cake calf candle cap cart cave cellar chain chair chariot charm chimney church
city cloth coach coachman coat coffin cook corn cottage couple court courtyard crab cradle crowd cuckoo
cup cupboard deer dervish desert dinner dish ditch doctor door dove dream dress drum egg enemy engine farm
feast fellow fence field fight fir fire fireplace flame flood flower flute fly food fool fountain friend
fruit gallows game gardener gate gift grain grass grave guard hat hay hedge herd hero hill hole home honey
horn house hunter husband hut inn jackal jar journey judge kettle key kingdom kitchen kitten knife knight
ladder lady lamb land lark leaf leopard letter lizard loaf log lord maid maiden market mare master mayor
meadow meal messenger milk mill minister mole monarch money monster moor mule necklace needle newspaper
nest nut oak ocean orchard otter oven ox palm parrot passage peacock peasant penny picture pigeon pillow
pine pipe pirate pit poet pond pool porcupine pot priest prison prisoner promise purse puppy rat reward
rider riddle road robin rock roof room rope sack saddle sand seal servant serpent sexton shadow shark
shell shirt shore singer sky sledge smith snail song soup spell spindle spirit spring squire stable steed
stick stone stork storm stove stranger stream street student summer swallow table tail teacher teapot tent
throne thorn tortoise town trap trick trunk tunnel turkey turtle uncle aunt valley vase village violin
vizir voyage wagon wall war wasp watch water weaver whale wheel whip widow wife window wish wren
""".split())
NOT_NAMES = set("Chinese Danish Dutch English French Indian Indians Russian Yorkshire Mrs Saturday "
                "Sunday Christian Viking Unc Christmas Peerless".split())


def find_names(text, least=40):
    """Capitalised words inside sentences that are hardly ever written small."""
    big = collections.Counter(re.findall(r"(?<=[a-z,] )([A-Z][a-z]{2,11})\b", text))
    small = collections.Counter(re.findall(r"\b[a-z]{3,12}\b", text))
    return {w for w, n in big.items() if n >= least and small[w.lower()] < n / 20 and w not in NOT_NAMES}


def phrase(noun, adjective=""):
    """The noun as a request names it, with its article."""
    if noun[0].isupper() or noun in PLAIN_NOUNS:
        return noun
    if noun in THE_NOUNS and not adjective:
        return "the " + noun
    words = (adjective + " " + noun).strip()
    return ("an " if words[0] in "aeiou" else "a ") + words


def subjects(opening, names):
    """(noun, adjective or "") of the things named early in an opening, the most frequent first."""
    words = re.findall(r"[A-Za-z]+", opening)
    early, near = words[:35], words[:110]
    count = collections.Counter()
    for w in near:
        for form in (w, w.lower(), w.lower()[:-1] if w.endswith("s") else w):
            if form in NOUNS or form in names:
                count[form] += 1
                break
    first = {}
    for i, w in enumerate(early):
        for form in (w, w.lower(), w.lower()[:-1] if w.endswith("s") else w):
            if form in count and form not in first:
                before = early[i - 1].lower() if i else ""
                first[form] = before if before in ADJECTIVES and form in NOUNS else ""
    return [(n, first[n]) for n in sorted(first, key=lambda n: -count[n])]


def make(rng, opening, title, names):
    """COUNT requests for an opening; title is "" inside a tale."""
    found = subjects(opening, names)[:4]
    words = opening.split("\n")[0].split()
    out = []
    for _ in range(COUNT):
        kind = rng.random()
        if title and kind < 0.22:
            t = title
            if t.split()[0] in ("The", "A", "An", "How", "Why"):
                t = t[0].lower() + t[1:]
            out.append(rng.choice(WITH_TITLE).format(t=t.rstrip("."), T=title))
        elif found and kind < 0.88:
            some = rng.sample(found, min(len(found), rng.choice([1, 1, 1, 2, 2, 3])))
            n = [phrase(x, adj if rng.random() < 0.4 else "") for x, adj in some]
            n = n[0] if len(n) == 1 else ", ".join(n[:-1]) + " and " + n[-1]
            out.append(rng.choice(WITH_NOUN).format(n=n))
        elif len(words) > 8 and kind > 0.95:
            out.append(" ".join(words[: rng.randint(4, min(16, len(words)))]))
        else:
            out.append(rng.choice(PLAIN))
    return out
