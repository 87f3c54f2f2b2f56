#!/usr/bin/env bash
# Everything on a GPU that is to be checked and timed after a change, in about six minutes: tests, products, trainings
# beside GPyTorch, residuals, predictions. Results go to the folder given; each part goes on whatever the others do.
#
#     WARMGP_DATA=…/uci bash benchmarks/gpu.sh benchmarks/results
set -u
out=${1:?a folder for the results}
mkdir -p "$out"
export PYTHONPATH=src:.
failed=0
run() { echo "== $*"; timeout "$limit" "$@" 2>&1 | tail -n 40; [ "${PIPESTATUS[0]}" -eq 0 ] || { echo "FAILED: $*"; failed=1; }; }
limit=400 run python -m benchmarks.gpu_tests --out "$out/gpu-tests-h200.json"
limit=150 run python -m benchmarks.matmul --out "$out/matmul-h200.json"
limit=150 run python -m benchmarks.fit pol --methods cg-factor cg-fused ap-fused default gpytorch-default gpytorch-matched exact \
    --factor-after 45 --out "$out/fit-pol-h200.json"
limit=100 run python -m benchmarks.residuals --out "$out/residuals-h200.json"
limit=100 run python -m benchmarks.predict pol --out "$out/predict-pol-h200.json"
exit $failed
