#!/bin/bash
# Written by ridgeline; the job's folder holds its specification and result.
set -u
export A='it'"'"'s'
export B='x y'
cd '/data/my repo' || exit 3
exec ridgeline run --kernel gemm --out 'a b.jsonl'
