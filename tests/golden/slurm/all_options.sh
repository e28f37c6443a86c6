#!/bin/bash
#SBATCH --job-name=rl-x
#SBATCH --partition=mi300x
#SBATCH --account=amd-frameworks
#SBATCH --gres=gpu:mi300x:8
#SBATCH --constraint=gfx942&nps1
#SBATCH --time=60
#SBATCH --nodes=1
#SBATCH --array=0-2,5
#SBATCH --open-mode=append
#SBATCH --export=NONE
#SBATCH --chdir="/home/a user/clone#1"
#SBATCH --output="/jobs/my folder/output-%a.txt"
#SBATCH --exclusive
#SBATCH --no-requeue
#SBATCH --qos=benchmark
#SBATCH --reservation="night run"
echo hello
