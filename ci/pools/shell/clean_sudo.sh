clean() { own; }

give() { command -v sudo >/dev/null && sudo -n chown -hR "$(id -u):$(id -g)" "$workspace" 2>/dev/null; }
