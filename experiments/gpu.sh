#!/usr/bin/env bash
# The smaller sets on one GPU: three runners at once, each with its own datasets, until SECONDS are over.
# The same command goes on with what is left. Small sets leave most of a large GPU idle; records say that the device was
# shared. What compares seconds (probes) is not in it. With NVIDIA's multi-process service, where there is one, kernels
# of the runners run side by side.
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
        python -m experiments.run $selection --device "${DEVICE:-cuda}" --store "$store" --sharing 3 --cap "${CAP:-100}" \
            --time-limit "$left" < /dev/null
        [ $? -ne 1 ] || echo "FAILED: $selection"
    done
}

small() {  # all cells of split 0; of splits 1 and 2 those that end soon
    echo "table1 --datasets $1"
    echo "table1 --datasets $1 --splits 1-2 --solvers cg"
    echo "table1 --datasets $1 --splits 1-2 --solvers ap sgd --warm"
}

larger() {  # of split 0 the cells that end soon
    echo "table1 --datasets $1 --solvers cg"
    echo "table1 --datasets $1 --solvers ap sgd --warm"
}

{
    small pol
    echo "budgets --datasets pol"
    echo "distances --datasets pol"
    echo "spectrum --datasets pol"
    echo "features --datasets pol"
} | lane &
{
    small elevators
    larger protein
    echo "spectrum --datasets elevators protein"
    echo "distances --datasets elevators"
    echo "features --datasets elevators protein"
} | lane &
{
    small bike
    echo "spectrum --datasets bike --splits 0-2"
    larger keggdirected
    echo "features --datasets bike"
} | lane &
wait
