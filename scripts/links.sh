#!/usr/bin/env bash
# links.sh: checks that every relative link in a Markdown file of the project refers to an existing file and heading.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# GitHub's rule: lower case, punctuation dropped, spaces to hyphens.
anchors() { sed -n -E 's/^#+ +//p' "$1" | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'; }

bad=0
while IFS= read -r file; do
  while IFS= read -r link; do
    [[ $link != *://* && $link != mailto:* ]] || continue
    path=${link%%#*}
    target=$file
    if [[ -n $path ]]; then target=$(dirname "$file")/$path; fi
    if [[ ! -e $target ]]; then
      echo "$file: $link leads nowhere" >&2
      bad=1
    elif [[ $link == *#* ]] && ! anchors "$target" | grep -qxF -- "${link#*#}"; then
      echo "$file: $link names no heading" >&2
      bad=1
    fi
  done < <(grep -oE '\]\([^) ]+\)' "$file" | sed -E 's/^\]\(//; s/\)$//')
done < <(git ls-files '*.md')
exit "$bad"
