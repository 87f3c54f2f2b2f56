#!/usr/bin/env bash
# Every tile shape of the fused products on this GPU, timed: compiled first, by many processes at once, because that is
# what takes the time, and then measured alone.
#
#     bash benchmarks/tune.sh build/tune.json
set -u
export PYTHONPATH=src:.
for shape in 0 1 2 3 4; do python -m benchmarks.matmul --tune --shapes "$shape" > /dev/null 2>&1 & done
python -m benchmarks.matmul --tune --shapes --blocks > /dev/null 2>&1 &
wait
python -m benchmarks.matmul --tune --out "${1:?a file for the results}"
