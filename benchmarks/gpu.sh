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
tests() { timeout 280 python -m pytest --no-cov -q -p no:cacheprovider "$@"; }
logs=$(mktemp -d)  # compiling takes the time: in six processes
tests tests/operators/test_gpu.py > "$logs/1" 2>&1 & first=$!
tests tests/operators/test_fused.py -k "products and not odd" > "$logs/2" 2>&1 & second=$!
tests tests/operators/test_fused.py -k "odd or float64 or tiles" > "$logs/3" 2>&1 & third=$!
tests tests/operators/test_fused.py -k "not (products or odd or float64 or tiles)" > "$logs/4" 2>&1 & fourth=$!
tests tests/operators/test_fused_distances.py tests/operators/test_falling.py tests/operators/test_centred.py tests/solvers/test_sums.py > "$logs/5" 2>&1 & fifth=$!
tests tests/operators/test_fused_gradient64.py tests/operators/test_fused_blocks.py tests/training/test_rehearsal.py > "$logs/6" 2>&1 & sixth=$!
for test in $first $second $third $fourth $fifth $sixth; do wait "$test" || { echo "FAILED: tests"; failed=1; }; done
tail -n 25 "$logs"/*
limit=150 run python -m benchmarks.matmul --out "$out/matmul-h200.json"
limit=150 run python -m benchmarks.fit pol --methods cg-factor cg-fused ap-fused default gpytorch-default gpytorch-matched exact \
    --factor-after 45 --out "$out/fit-pol-h200.json"
limit=100 run python -m benchmarks.residuals --out "$out/residuals-h200.json"
limit=100 run python -m benchmarks.predict pol --out "$out/predict-pol-h200.json"
exit $failed
