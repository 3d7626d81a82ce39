#!/bin/bash
# Makes a book of the pages that SUMMARY.md lists, with the files that they link to beside them: docs/book.sh <folder>
set -euo pipefail

version=0.5.4
book=$(realpath -m "${1:?usage: docs/book.sh <folder for the book>}")
tool=${KOSMOS_CSI_CACHE:-$HOME/.cache/kosmos-csi}/tools/mdbook-$version
cd "$(dirname "$0")/.."

if [ ! -x "$tool/bin/mdbook" ]; then
	echo "building mdBook $version, this once; it takes some minutes"
	cargo install --locked --quiet --root "$tool" "mdbook@$version"
fi

source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
mkdir "$source/pages"
cp docs/book.toml "$source"
cp --recursive --parents -- *.md LICENSE docs deploy sanity "$source/pages"
# A book has its summary where its pages begin, which is the checkout: there the links of all pages are right.
sed -e 's|](|](docs/|' -e 's|](docs/\.\./|](|' docs/SUMMARY.md > "$source/pages/SUMMARY.md"
rm "$source/pages/docs/SUMMARY.md"
"$tool/bin/mdbook" build "$source" --dest-dir "$book"
echo "the book is in $book: open $book/index.html"
