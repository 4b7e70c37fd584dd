package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Endpoints registered by hand are listed by name, and wrong arguments get a hint.
func TestEndpointsCommands(t *testing.T) {
	t.Parallel()
	socket := "unix://" + filepath.Join(t.TempDir(), "admin.sock")
	serve(t, []string{"--endpoints", "--admin-listen", socket}, "a.yaml", cluster("a"))
	chancery(t, 0, `chancery: warning: no served cluster uses EDS with the name "b"`, "endpoints", "put", "b", "10.0.0.1:80", "--admin", socket)
	chancery(t, 0, "ok: 0 set, 1 unchanged", "endpoints", "put", "b", "10.0.0.1:80", "--admin", socket)
	chancery(t, 0, "ok: 1 set", "endpoints", "put", "b", "10.0.0.2:80", "--id", "two", "--admin", socket)
	for want, args := range map[string][]string{"b\n": {}, "10.0.0.1:80\ntwo\n": {"b"}} {
		out, err := exec.CommandContext(t.Context(), binary, append([]string{"endpoints", "ls", "-o", "name", "--admin", socket}, args...)...).Output()
		if err != nil || string(out) != want {
			t.Errorf("%v: %q, want %q; %v", args, out, want, err)
		}
	}
	chancery(t, 0, "ok: 0 set, 0 unchanged, 2 removed\n", "endpoints", "rm", "b", "--all", "--admin", socket)
	chancery(t, 0, "so clients get none:\n  EDS b of group default (chancery endpoints rm b -g default --release serves", "status", "--admin", socket)
	chancery(t, 0, "No endpoints are registered.", "endpoints", "ls", "b", "--admin", socket)
	chancery(t, 0, "ok: 0 set, 0 unchanged, 0 removed\nb is not registered any more: its endpoints in files or revisions are served\n", "endpoints", "rm", "b", "--release", "--admin", socket)
	chancery(t, 4, "get groups", "endpoints", "put", "b", "10.0.0.1:80", "-g", "nosuch", "--admin", socket)
	chancery(t, 2, "must be 1 to 100000", "endpoints", "put", "b", "10.0.0.1:80", "--weight", "0", "--admin", socket)
}
