#!/usr/bin/env bash
# What the results page needs from one GPU: three runners at once, each with its own datasets, until SECONDS are over.
# The same command goes on with what is left. Small sets leave most of a large GPU idle, so three take little longer than
# one; records say that the device was shared. With NVIDIA's multi-process service their kernels run side by side.
#
#     WARMGP_DATA=…/uci bash experiments/gpu.sh STORE SECONDS
set -u
store=${1:?a folder for the records} limit=${2:?seconds}
export PYTHONPATH=src:.
export CUDA_MPS_PIPE_DIRECTORY=/tmp/warmgp-mps CUDA_MPS_LOG_DIRECTORY=/tmp/warmgp-mps-log
mkdir -p "$store" "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
if nvidia-cuda-mps-control -d 2> /dev/null; then
    trap 'echo quit | nvidia-cuda-mps-control' EXIT
else
    echo "no multi-process service: runners take turns"
fi

lane() {  # selections on stdin, one after the other
    while read -r selection; do
        left=$((limit - SECONDS))
        [ "$left" -gt 15 ] || return
        # shellcheck disable=SC2086
        python -m experiments.run $selection --device "${DEVICE:-cuda}" --store "$store" --sharing 3 --cap "${CAP:-120}" \
            --time-limit "$left" < /dev/null
        [ $? -ne 1 ] || echo "FAILED: $selection"
    done
}

lane <<'LIST' &
table1 --datasets pol
table1 --datasets pol --splits 1-2 --solvers cg
table1 --datasets pol --splits 1-2 --solvers ap sgd --warm
budgets --datasets pol --warm
budgets --datasets pol --no-warm
distances --datasets pol
probes --datasets pol
features --datasets pol
LIST
lane <<'LIST' &
table1 --datasets elevators
table1 --datasets elevators --splits 1-2 --solvers cg
table1 --datasets elevators --splits 1-2 --solvers ap sgd --warm
table1 --datasets protein --solvers cg
table1 --datasets protein --solvers ap sgd --warm
distances --datasets elevators
features --datasets elevators protein
LIST
lane <<'LIST' &
table1 --datasets bike
table1 --datasets bike --splits 1-2 --solvers cg
table1 --datasets bike --splits 1-2 --solvers ap sgd --warm
table1 --datasets keggdirected --solvers cg
table1 --datasets keggdirected --solvers ap sgd --warm
features --datasets bike
LIST
wait
