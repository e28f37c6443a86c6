# The pod's render devices: "--device /dev/dri/renderD129 ...".  An empty file would hide every GPU.
choose_devices() {
  local file="$root@RENDER_DEVICES@" word nodes=0
  [ -r "$file" ] || refuse "$file is missing: this runner does not say which GPUs are its own; correct isolation"
  devices=(--device=/dev/kfd)
  for word in $(tr '=' ' ' <"$file"); do
    case $word in
      --device) ;;
      /dev/dri/renderD[0-9]* | /dev/dri/card[0-9]*)
        devices+=("--device=$word")
        case $word in *renderD*) nodes=$((nodes + 1)) ;; esac
        ;;
      /dev/kfd) ;;
      *) refuse "$file holds '$word', which is not a render device; correct the runner" ;;
    esac
  done
  [ "$nodes" = "$gpus" ] || refuse "the job wants $gpus GPUs and $file gives $nodes; correct the pool or the runner"
  renumber
}
