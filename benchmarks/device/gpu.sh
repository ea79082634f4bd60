#!/bin/sh
# What the CUDA-graph runner does on this machine's GPU: exactness, staircase, rates.
#
#   sh benchmarks/device/gpu.sh [--json] [--layers N] ...
#
# Needs only python3 with torch (CUDA), transformers, tokenizers and safetensors; PYTHON
# names another interpreter. The model is a random 7B-shaped Qwen2; nothing is downloaded.
set -eu
cd "$(dirname "$0")/../.."
exec "${PYTHON:-python3}" -m benchmarks.device.gpu "$@"
