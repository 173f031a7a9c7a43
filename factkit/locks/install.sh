#!/bin/sh
# Set factkit up in a folder, without a network: sh install.sh [folder]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${1:-factkit}
mkdir -p "$target"
cd "$target"
tar -xzf "$here/factkit.tar.gz"
"${PYTHON:-python3}" -m venv .venv
offline="--quiet --disable-pip-version-check --no-index --find-links $here/wheels"
.venv/bin/python -m pip install $offline --constraint factkit/locks/cpu.txt --editable .
.venv/bin/python -m pip install $offline --no-deps -r factkit/locks/assets.txt
mkdir -p .venv/etc/ipython
cp factkit/locks/ipython_kernel_config.json .venv/etc/ipython
touch .venv/base.done
cache=${FACTKIT_CACHE:-$HOME/.cache/factkit}
mkdir -p "$cache"
cp -Rn "$here/cache/." "$cache/" || true
if [ -d "$here/book" ]; then mkdir -p outputs && cp -R "$here/book" outputs/book; fi
echo "Ready. Begin with: cd $target && make lab"
