#!/usr/bin/env bash
# Install Google Research Football: the real engine, built from its source on PyPI. `make football` runs this.
#
#   scripts/football.sh [PYTHON]        PYTHON: the interpreter to install it for (.venv/bin/python)
#
# What is there already is left alone. The compiled wheel is kept in EMU_WHEELS (~/.cache/emu/wheels) for the next environment.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=2.10.2
python=${1:-.venv/bin/python}
wheels=${EMU_WHEELS:-${XDG_CACHE_HOME:-$HOME/.cache}/emu/wheels}
system_packages=(
  build-essential cmake pkg-config python3-dev libgl-dev libegl-dev
  libsdl2-dev libsdl2-image-dev libsdl2-ttf-dev libsdl2-gfx-dev
  libboost-python-dev libboost-thread-dev libboost-filesystem-dev libboost-system-dev
)
# psutil, setuptools and wheel build it; the others it imports. six is one that it does not declare.
python_packages=(setuptools wheel psutil gym six absl-py opencv-python-headless numpy)

say() { echo "football: $*"; }
stop() { say "$@" >&2; exit 1; }
pip() { "$python" -m pip --quiet --disable-pip-version-check "$@"; }
works() { "$python" -c 'import gfootball.env, gfootball_engine' >/dev/null 2>&1; }

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

install_system_packages() {
  local missing=() name
  command -v dpkg-query >/dev/null || {
    say "this is not Debian or Ubuntu: going on without a look at system packages; needed are the equivalents of"
    say "  ${system_packages[*]}"
    return
  }
  for name in "${system_packages[@]}"; do
    installed "$name" || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || stop "system packages are missing; ask for them, then run this again:
  sudo apt-get install --no-install-recommends ${missing[*]}"
  say "installing ${#missing[@]} system packages: ${missing[*]}"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
}

cached_wheel() {
  local tag
  tag=$("$python" -c 'import sys; print(f"cp{sys.version_info[0]}{sys.version_info[1]}")')
  find "$wheels" -name "gfootball-$VERSION-*$tag-*_$(uname -m).whl" 2>/dev/null | head -1
}

# Its build script finds the interpreter on the path, as in an activated environment, and needs psutil, which build isolation hides.
build_wheel() {
  local log=$wheels/build.log home
  mkdir -p "$wheels"
  home=$(cd "$(dirname "$python")" && pwd)
  say "compiling gfootball $VERSION (5 to 10 minutes on two cores; log: $log)"
  VIRTUAL_ENV=$(dirname "$home") PATH=$home:$PATH \
    "$home/$(basename "$python")" -m pip --disable-pip-version-check --verbose wheel --no-build-isolation --no-deps \
    -w "$wheels" "gfootball==$VERSION" >"$log" 2>&1 \
    || { tail -30 "$log" >&2; stop "the build failed; the end of its log is above, all of it in $log"; }
}

[ -x "$python" ] || stop "no interpreter at $python; 'make install' makes one"
works && { say "gfootball is installed and imports; nothing to do"; exit 0; }

install_system_packages
pip install -c constraints.txt "${python_packages[@]}"
if [ -z "$(cached_wheel)" ]; then build_wheel; else say "using the wheel in $wheels"; fi
pip install --no-deps --force-reinstall "$(cached_wheel)"
works || { "$python" -c 'import gfootball.env, gfootball_engine' || true; stop "installed, but it does not import: see above"; }
say "gfootball $VERSION is ready; try: emu play football/3_vs_1_with_keeper --policy random"
