# The pod's GPU settings: lines NAME=VALUE, of which only the GPUs are read.
find_entries() {
  local line name
  source="$root@ENV_FILE@"
  entries=
  [ -r "$source" ] || refuse "$source is missing: this runner does not say which GPUs are its own; correct isolation"
  for name in @VISIBLE@; do
    while read -r line || [ -n "$line" ]; do
      case $line in "$name="?*) entries=${line#*=} ;; esac
    done <"$source"
    [ -z "$entries" ] || break
  done
  entries=${entries//[\"\']/}
  count_entries
}
