#!/usr/bin/env python3
"""words.py: reports words of docs/style.md that are wrong, in the text, identifiers and paths of all tracked files.

    scripts/words.py             print file:line: word -> replacement for each, and exit with 1 if there is one
    scripts/words.py PATH...     only below these paths
    scripts/words.py --count     the number for each folder instead

Identifiers are split at underscores and at changes of case. An identifier is a name in code, a word in backticks, and a word
with an underscore or a capital inside. A name of more than three words (a test's) is a sentence.
"""

import bisect
import collections
import pathlib
import re
import subprocess
import sys

# Wrong in every context. A phrase of several words also matches an identifier that contains these words in a row.
EVERYWHERE = {
    "walk walks walked walking walker walkers": "reconcile, reconciliation; iterate; tutorial",
    "glance glances glanced": "list, poll, probe",
    "world worlds": "state, environment, TestEnv",
    "stranger strangers strangers'": "foreign, unmanaged",
    "nobody nobodys nobody's": "no one, none; foreign, unmanaged, unassigned",
    "somebody somebody's whoever": "another client, another program, the user; every … that",
    "patience impatient": "timeout, deadline",
    "anew": "again; restart; re-create",
    "mend mends mended mending": "fix, repair",
    "condemn condemns condemned condemning condemnation": "mark_for_deletion, marked for deletion",
    "witness witnesses witnessed witnessing": "source; in tests: invariant checker",
    "testify testifies testimony hearsay": "report, confirm",
    "troubles": "failures",
    "heed heeds heeded": "apply, respect, take effect",
    "beat beats beating": "heartbeat",
    "lest": "so that … not",
    "hereafter henceforth thence whence": "from then on; from where",
    "stand aside|stands aside|stood aside|standing aside": "step down",
    "way back|ways back": "reply direction",
    "appear as|appears as|appearing as": "snat, source address",
    "hand on|hands on|handed on": "dnat, forward, delegate, pass",
    "let go|lets go|letting go": "remove the finalizer, release",
    "leads to nobody|lead to nobody": "orphaned, stale",
    "first wait": "backoff",
    "in vain": "without effect, without success, unused",
}

# Wrong as a name of a variable, a function, a type, a field, a metric or a file; in a sentence they may be right.
IN_NAMES = {
    "home homes": "primary interface; management cluster; policy source",
    "look looks looked looking": "observe, poll, list, read, get",
    "pass passes": "reconcile, reconciliation",
    "turn turns": "reconcile, reconciliation, round, permit",
    "said": "reported, error_body, output, message",
    "told": "reported, sent",
    "answer answers answered": "response, result, reply",
    "noted": "recorded",
    "wanted wants": "desired",
    "dead": "stale, orphaned, stopped, unreachable",
    "finding findings": "problem",
    "room rooms": "stage, module; capacity, free",
    "house": "stage, module",
    "again": "requeue_after, retry",
    "spared": "skipped, kept",
    "beside": "next_to; a noun for what it is",
}

# Names of others, and set phrases. They are removed before words are looked for.
ALLOWED = re.compile(
    r"""
      \bos\.walk\b | \bwalkdir\b | \bWalkDir\b                          # folders
    | \bworld-(?:readable|writable)\b | \bhello[ ,-]+world\b
    | \bGlance\b | \bglance-\w+ | \bglance_(?:api|store)\w*              # the image service of OpenStack
    | \bHOME\b | \bXDG_CACHE_HOME\b | \bhome_dir\b | \bhome_location\b
    | \buser(?:name)?[ =:"]+nobody\b | \bnobody:x\b                       # the account of Unix
    | \bWantedBy\b                                                      # systemd
    | \bdead_code\b | \blook_?(?:up|ahead|behind)s?\b                    # rustc; search
    | \bpass_?(?:through|word|phrase)\b
    | \bhouse_?keep\w*
    | \bTryAgain\b                                                      # code 11 of the CNI specification, "Try again later"
    | \bRTNH_F_DEAD\b                                                 # linux/rtnetlink.h
    | \bl_whence\b                                                      # struct flock
    """,
    re.VERBOSE,
)

# What a path and its text must match, and the words that they may use.
ALLOWED_IN = (
    (re.compile(""), re.compile(r"\bHOME\b"), ("home",)),
    (re.compile(r"\.py$"), re.compile(""), ("pass",)),
    (re.compile("^e2e/.*openstack"), re.compile(""), ("glance",)),
)

# Files that quote the words, and files that a program writes.
SKIPPED = re.compile(r"^(?:docs/style\.md|scripts/words\.py|.*\.lock|.*go\.(?:mod|sum)|.*/fuzz/seeds/.*|.*/proptest-regressions/.*|.*\.(?:png|pem|tgz|gz))$")

STRING = r'(?P<string>"(?:[^"\\]|\\.)*")'
CODE = {
    ".rs": re.compile(
        r"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<raw>b?r(?P<hashes>\#*)\".*?\"(?P=hashes))|" + STRING + r"|'(?:[^'\\\n]|\\[^\n]{1,8}?)'",
        re.DOTALL,
    ),
    ".go": re.compile(r"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<raw>`[^`]*`)|" + STRING, re.DOTALL),
    ".py": re.compile(r'(?P<raw>""".*?""")|(?P<comment>\#[^\n]*)|' + STRING + r"|'(?:[^'\\\n]|\\.)*'", re.DOTALL),
    ".sh": re.compile(r"(?P<comment>(?:(?<=\s)|^)\#[^\n]*)|" + STRING + r"|(?P<raw>'[^']*')", re.DOTALL | re.MULTILINE),
}

# A doc comment that describes an item names it: "The limit that is exceeded", not "Which limit is exceeded" (sentence 4 of the page).
RIDDLE = re.compile(r"(?:(?<=\n)|^)(?P<before>[^\n]*\n)?[ \t]*//[/!] (?P<word>What|Which|Who|Whoever|Whose)\b")
UNFINISHED = re.compile(r"^\s*//[/!] .*[^.:\s]\s*$")

TOKEN = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:'s\b)?")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
BACKTICKS = re.compile(r"`[^`\n]+`")


def table(entries):
    """Words, as tuples of one, and phrases, as tuples of several, with their replacements."""
    found = {}
    for key, replacement in entries.items():
        phrases = key.split("|") if key in PHRASES or "|" in key else key.split()
        for phrase in phrases:
            found[tuple(phrase.split())] = replacement
    return found


# Keys that are one phrase, not a list of words.
PHRASES = {"first wait", "in vain"}
ANYWHERE = table(EVERYWHERE)
NAMES = table(IN_NAMES)
LONGEST = max(len(phrase) for phrase in ANYWHERE)


def parts(token):
    return [part.lower() for part in PART.findall(token)]


def is_name(token, in_code):
    return in_code or "_" in token or re.search(r"[a-z][A-Z]", token) is not None


def wrong(text, in_code, allowed):
    """Yields (offset, words, replacement) for each word or phrase of `text` that is wrong; `allowed` names may stay."""
    text = ALLOWED.sub(lambda match: " " * len(match.group()), text)
    # The parts of all tokens, each with where its token begins. A phrase of a sentence spans tokens, in code it does not.
    sequence = []
    for match in TOKEN.finditer(text):
        token = match.group().removesuffix("'s")
        words = parts(token)
        sequence.extend((match.start(), word) for word in words)
        if in_code:
            sequence.append((match.start(), ""))
        if len(words) <= 3 and is_name(token, in_code):
            for word in words:
                if (word,) in NAMES and word not in allowed:
                    yield match.start(), word, NAMES[(word,)]
    for index, (offset, _) in enumerate(sequence):
        for length in range(LONGEST, 0, -1):
            phrase = tuple(word for _, word in sequence[index : index + length])
            if len(phrase) == length and phrase in ANYWHERE:
                if phrase[0] not in allowed:
                    yield offset, " ".join(phrase), ANYWHERE[phrase]
                break


def segments(path, text):
    """Yields (offset, text, whether it is code)."""

    def prose(start, end):
        at = start
        for match in BACKTICKS.finditer(text, start, end):
            yield at, text[at : match.start()], False
            yield match.start(), match.group(), True
            at = match.end()
        yield at, text[at:end], False

    pattern = CODE.get(pathlib.PurePath(path).suffix)
    if pattern is None:
        yield from prose(0, len(text))
        return
    at = 0
    for match in pattern.finditer(text):
        yield at, text[at : match.start()], True
        yield from prose(match.start(), match.end())
        at = match.end()
    yield at, text[at:], True


def problems(path, text):
    """Yields (line, words, replacement); line 0 is the path itself."""
    for _, words, replacement in wrong(path, True, ()):
        yield 0, words, replacement
    allowed = [word for where, what, words in ALLOWED_IN if where.search(path) and what.search(text) for word in words]
    lines = [match.start() for match in re.finditer("\n", text)]
    if path.endswith(".rs"):
        for match in RIDDLE.finditer(text):
            if not UNFINISHED.match(match["before"] or ""):
                yield bisect.bisect_left(lines, match.start("word")) + 1, match["word"], "the noun that the item is"
    for start, segment, in_code in segments(path, text):
        for offset, words, replacement in wrong(segment, in_code, allowed):
            yield bisect.bisect_left(lines, start + offset) + 1, words, replacement


EXAMPLES = (
    ("a.rs", "fn walk() {}", ["walk"]),
    ("a.rs", "struct LastWalk;", ["walk"]),
    ("a.rs", "// It begins anew.\nlet anew = 1;", ["anew", "anew"]),
    ("a.rs", 'let x = "the walk ended";', ["walk"]),
    ("a.rs", "// Look at the dead Node. `dead` is a name.", ["dead"]),
    ("a.rs", "let deadline = lookup(password); #[allow(dead_code)] fn look_up() {}", []),
    ("a.rs", "fn a_dead_node_is_removed_from_the_list() {}", []),
    ("a.rs", "fn nobody_reads_the_list_of_the_nodes() {}", ["nobody"]),
    ("a.rs", "fn stand_aside() {} // let go of it", ["stand aside", "let go"]),
    ("a.rs", "let go = home; // lets go", ["home", "lets go"]),
    ("a.rs", 'let home = var("HOME");', []),
    ("a.rs", 'let c = \'"\'; let dead = r#"a "pass" here"#;', ["dead"]),
    ("a.md", "The packet takes the way\nback.", ["way back"]),
    ("a.md", "A pass over all routes; `passes` counts them.", ["passes"]),
    ("a.md", "world-readable files of Glance; os.walk", []),
    ("walk.svg", "", ["walk"]),
    ("a.rs", "/// What it is.\nlet a = 1;\n    /// Which.\nlet b = 2;", ["What", "Which"]),
    ("a.rs", "/// The limit of a plan, and the list\n/// which it is about. Which one?\n// What follows is code.", []),
    ("a.sh", 'said=$(cat) # in vain', ["said", "in vain"]),
    ("a.yaml", "nobody's", ["nobody"]),
)


def main(arguments):
    for path, text, expected in EXAMPLES:
        found = [words for _, words, _ in problems(path, text)]
        assert sorted(found) == sorted(expected), (path, text, found)
    count = "--count" in arguments
    only = [argument for argument in arguments if argument != "--count"]
    top = pathlib.Path(__file__).resolve().parent.parent
    tracked = subprocess.run(["git", "ls-files", "--", *only], cwd=top, check=True, capture_output=True, text=True)
    folders = collections.Counter()
    for path in tracked.stdout.splitlines():
        if SKIPPED.match(path):
            continue
        try:
            text = (top / path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        for line, words, replacement in problems(path, text):
            folders["/".join(path.split("/")[:3])] += 1
            if not count:
                print(f"{path}:{line or 1}: {words} -> {replacement}" + ("" if line else " (the file's name)"))
    if count:
        for folder, number in sorted(folders.items()):
            print(f"{number:6} {folder}")
    total = sum(folders.values())
    if total:
        print(f"{total} words that docs/style.md replaces", file=sys.stderr)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
