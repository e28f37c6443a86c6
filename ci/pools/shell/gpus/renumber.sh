renumber() {
  local name kept=() number=0 numbers=
  for name in "${environment[@]}"; do
    case ${name%%=*} in *_VISIBLE_DEVICES | GPU_DEVICE_ORDINAL) ;; *) kept+=("$name") ;; esac
  done
  while [ "$number" -lt "$gpus" ]; do
    numbers=$numbers${numbers:+,}$number
    number=$((number + 1))
  done
  environment=("${kept[@]}" "ROCR_VISIBLE_DEVICES=$numbers")
}
