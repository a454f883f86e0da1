# Sourced by the scripts beside it, at the top of the repository.
# `prepare EXTRA` makes .venv hold this package with that extra, at the versions of constraints.txt,
# and returns at once when it already does: a stamp per extra remembers what was installed.

prepare() {
  local extra=$1 wanted
  wanted=$(cat pyproject.toml constraints.txt | cksum)
  if usable && { stamped "$extra" "$wanted" || stamped dev "$wanted"; }; then return; fi

  if ! usable; then
    check_python
    echo "Making a virtual environment in .venv"
    python3 -m venv --clear .venv
  fi
  echo "Installing kinfolk[$extra] into .venv (about two minutes the first time, longer on a slow line)"
  rm -f .venv/stamp-*
  # torch goes first and alone, so that nothing can talk pip into another version of it.
  .venv/bin/python -m pip install -q -c constraints.txt torch
  .venv/bin/python -m pip install -q -c constraints.txt -e ".[$extra]"
  echo "$wanted" > ".venv/stamp-$extra"
}

# The environment runs, and was made for this folder: a moved one still points to its old place.
usable() {
  grep -qF "$PWD/.venv" .venv/pyvenv.cfg 2>/dev/null && .venv/bin/python -c "" 2>/dev/null
}

stamped() {
  [ "$(cat ".venv/stamp-$1" 2>/dev/null)" = "$2" ]
}

check_python() {
  if ! python3 -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then
    echo "kinfolk needs Python 3.11 or newer as python3; found $(python3 --version 2>/dev/null || echo none)" >&2
    exit 1
  fi
  if ! python3 -c "import ensurepip, venv" 2>/dev/null; then
    echo "python3 cannot make virtual environments: install its venv package (on Debian: apt install python3-venv)" >&2
    exit 1
  fi
}
