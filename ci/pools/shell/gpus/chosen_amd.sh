# The render devices of the entries, and no others.  Inside they are all there is, so they are counted anew from 0.
choose_devices() {
  local one minor unique number found seen=,
  find_entries
  devices=(--device=/dev/kfd)
  for one in "${list[@]}"; do
    number=0 found=
    while read -r minor unique; do
      case $one in "$number" | "GPU-$unique") found=$minor ;; esac
      number=$((number + 1))
    done < <(render_nodes)
    [ -n "$found" ] || refuse "$source names GPU $one, and this host shows $number GPUs; correct the runner"
    case $seen in *",$found,"*) refuse "$source names one GPU twice ($entries); correct the runner" ;; esac
    seen=$seen$found,
    devices+=("--device=/dev/dri/renderD$found")
  done
  renumber
}
