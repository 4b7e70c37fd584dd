package main

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestMemoryOf(t *testing.T) {
	t.Parallel()
	odd := errors.New("odd")
	for _, c := range []struct {
		what    string
		env     string
		inForce int64
		cgroup  uint64
		err     error
		want    memory
	}{
		{"SAFE-9 the cgroup's, with room for what Go does not count", "", math.MaxInt64, 1000, nil, memory{900, "cgroup"}},
		{"SAFE-9 GOMEMLIMIT wins", "500B", 500, 1000, nil, memory{500, "GOMEMLIMIT"}},
		{"GOMEMLIMIT=off wins, too", "off", math.MaxInt64, 1000, nil, memory{0, "GOMEMLIMIT"}},
		{"a cgroup without a limit", "", math.MaxInt64, 0, memlimit.ErrNoLimit, memory{0, "nobody"}},
		{"a cgroup of version 1 without a limit", "", math.MaxInt64, 1<<63 - 4096, nil, memory{0, "nobody"}},
		{"no cgroup", "", math.MaxInt64, 0, memlimit.ErrNoCgroup, memory{0, "nobody"}},
		{"a cgroup that cannot be read", "", math.MaxInt64, 0, odd, memory{0, "nobody"}},
	} {
		got, err := memoryOf(c.env, c.inForce, func() (uint64, error) { return c.cgroup, c.err })
		if got != c.want || errors.Is(err, odd) != errors.Is(c.err, odd) {
			t.Errorf("%s: %+v, %v, want %+v", c.what, got, err, c.want)
		}
	}
}

func TestHeldTotal(t *testing.T) {
	t.Parallel()
	for given, want := range map[int]int{0: 250, 7: 7} {
		var b bounding
		b.HeldInAll = given
		if b.within(memory{1000, "cgroup"}); b.HeldInAll != want {
			t.Errorf("SAFE-9 --max-held-total %d is %d, want %d", given, b.HeldInAll, want)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	t.Run("SAFE-9 the log says what limits memory", func(t *testing.T) {
		t.Parallel()
		cmd := exec.Command(binary, "serve", filepath.Join(t.TempDir(), "none"), "--state-dir", "")
		cmd.Env = append(os.Environ(), "GOMEMLIMIT=700MiB")
		out, _ := cmd.CombinedOutput()
		if want := `"msg":"memory limit","by":"GOMEMLIMIT","bytes":` + strconv.Itoa(700<<20); !strings.Contains(string(out), want) {
			t.Errorf("no %s in %s", want, out)
		}
		cmd = exec.Command(binary, "serve", filepath.Join(t.TempDir(), "none"), "--state-dir", "")
		cmd.Env = append(os.Environ(), "GOMEMLIMIT=off")
		out, _ = cmd.CombinedOutput()
		if want := `"msg":"there is no memory limit: the program takes what it needs","hint":"give the container one, or set GOMEMLIMIT"`; !strings.Contains(string(out), want) || strings.Contains(string(out), "nobody") {
			t.Errorf("no %s in %s", want, out)
		}
	})
}
