package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	t.Run("SAFE-9 the log has the memory limit", func(t *testing.T) {
		t.Parallel()
		cmd := exec.Command(binary, "serve", filepath.Join(t.TempDir(), "none"), "--state-dir", "")
		cmd.Env = append(os.Environ(), "GOMEMLIMIT=700MiB")
		out, _ := cmd.CombinedOutput()
		if want := `"msg":"memory limit","by":"GOMEMLIMIT","bytes":` + strconv.Itoa(700<<20); !strings.Contains(string(out), want) {
			t.Errorf("no %s in %s", want, out)
		}
		if want := fmt.Sprintf(`"msg":"limits derived from memory","max_held_total":%d,"max_unfinished":%d,"max_request":%d,"max_streams":8960`, 175<<20, 48<<20, 32<<20); !strings.Contains(string(out), want) {
			t.Errorf("no %s in %s", want, out)
		}
		cmd = exec.Command(binary, "serve", filepath.Join(t.TempDir(), "none"), "--state-dir", "")
		cmd.Env = append(os.Environ(), "GOMEMLIMIT=16MiB")
		out, _ = cmd.CombinedOutput()
		if want := `"clients":204`; !strings.Contains(string(out), want) { // half of the memory, 40 KiB for each
			t.Errorf("SAFE-14 no %s in %s", want, out)
		}
		cmd = exec.Command(binary, "serve", filepath.Join(t.TempDir(), "none"), "--state-dir", "")
		cmd.Env = append(os.Environ(), "GOMEMLIMIT=off")
		out, _ = cmd.CombinedOutput()
		if want := `"msg":"no memory limit is set: the program may use all memory of the machine","hint":"set a memory limit for the container, or GOMEMLIMIT"`; !strings.Contains(string(out), want) || strings.Contains(string(out), "nobody") {
			t.Errorf("no %s in %s", want, out)
		}
	})
}
