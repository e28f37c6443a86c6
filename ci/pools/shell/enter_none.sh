enter() { supervise env -i PATH="$PATH" ${HOME+HOME="$HOME"} "${environment[@]}" bash -c "$(entry)"; }
