#!/bin/bash
#SBATCH --job-name=rl-nightly
#SBATCH --partition=mi300x
#SBATCH --account=amd-frameworks
#SBATCH --gres=gpu:mi300x:8
#SBATCH --constraint=gfx942&nps1
#SBATCH --exclusive
#SBATCH --exclude=node-3,node-7
#SBATCH --time=2:00:00
#SBATCH --nodes=1
#SBATCH --array=0-2,5
#SBATCH --no-requeue
#SBATCH --open-mode=append
#SBATCH --export=NONE
#SBATCH --chdir="/home/a user/clone#1"
#SBATCH --output="/jobs/my folder/output-%a.txt"
#SBATCH --qos=benchmark
#SBATCH --reservation="night run"
echo hello
