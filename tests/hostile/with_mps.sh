#!/usr/bin/env bash
# Runs a command whose processes share the GPUs through an MPS daemon of its own, and ends the daemon with it:
#   tests/hostile/with_mps.sh build/tests/hostile/hostile --device cuda --layout processes --seconds 500
set -euo pipefail

if [[ $# -eq 0 ]]; then
  echo "usage: $0 COMMAND [ARGUMENT...]" >&2
  exit 2
fi
if ! command -v nvidia-cuda-mps-control >/dev/null; then
  echo "$0: nvidia-cuda-mps-control, which comes with NVIDIA's driver, is not there" >&2
  exit 2
fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/stretto-mps.XXXXXX")
export CUDA_MPS_PIPE_DIRECTORY=$folder/pipe CUDA_MPS_LOG_DIRECTORY=$folder/log
mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"

# Servers whose clients were killed may hang at the end: what is left is ended by its number. What MPS says of a
# command that failed is all that tells why its processes could not use the GPU.
finish() {
  local status=$? daemon
  if [[ $status -ne 0 ]]; then
    echo "$0: status $status; the last words of MPS:" >&2
    tail -n 20 "$CUDA_MPS_LOG_DIRECTORY"/*.log >&2 2>/dev/null || true
  fi
  daemon=$(cat "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid" 2>/dev/null || true)
  echo quit | timeout 20 nvidia-cuda-mps-control >/dev/null 2>&1 || true
  if [[ -n $daemon ]] && kill -0 "$daemon" 2>/dev/null; then
    local servers
    servers=$(ps -o pid= --ppid "$daemon" || true)
    # shellcheck disable=SC2086 # one word for each process
    kill -9 "$daemon" $servers 2>/dev/null || true
  fi
  rm -rf "$folder"
}
trap finish EXIT

nvidia-cuda-mps-control -d
"$@"
