# One line for each AMD GPU that this host shows, as ROCr counts them: the minor of its render device, its unique id.
render_nodes() {
  local number=0 key value simd minor unique
  while [ -d "$root/sys/class/kfd/kfd/topology/nodes/$number" ]; do
    simd=0 minor=0 unique=0
    while read -r key value; do
      case $key in
        simd_count) simd=$value ;;
        drm_render_minor) minor=$value ;;
        unique_id) unique=$value ;;
      esac
    done 2>/dev/null <"$root/sys/class/kfd/kfd/topology/nodes/$number/properties"
    [ "$simd" = 0 ] || printf '%s %016x\n' "$minor" "$((unique))"
    number=$((number + 1))
  done
}
