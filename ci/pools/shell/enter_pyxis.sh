enter() {
  local slurm=() name joined
  for name in $(compgen -e SLURM); do  # srun finds its allocation by them
    case $name in @SECRET@) ;; *) slurm+=("$name=${!name}") ;; esac
  done
  joined=$(IFS=,; echo "$workspace:$workspace${mounts[*]+,${mounts[*]}}")
  supervise env -i PATH="$PATH" HOME="${HOME-/}" ${slurm[@]+"${slurm[@]}"} "${environment[@]}" srun --ntasks=1 --export=ALL \
    --container-image="$image" --container-mounts="$joined" --container-workdir="$workspace" \
    --no-container-mount-home ${options[@]+"${options[@]}"} bash -c "$(entry)"
}
