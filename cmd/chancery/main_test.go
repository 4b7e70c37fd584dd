package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// binary is the program, installed once.
var binary string

// buildFlags are additional flags of the build: see race_test.go.
var buildFlags []string

// version is where the linker writes the version of a release.
const version = "github.com/chancery-xds/chancery/internal/cli."

// The version of the program under test, as in a release.
const testVersion, testCommit = "v0.0.1-test", "0123456789abcdef0123456789abcdef01234567"

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "chancery")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "chancery")
	os.Setenv("STATE_DIRECTORY", filepath.Join(dir, "state")) // do not use the state directory of the user
	os.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "run"))
	os.Setenv("CHANCERY_ADMIN_LISTEN", "127.0.0.1:0") // several servers run at a time
	if err := install(binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// install builds the program, or links another one: E2E_SERVER is its path, as in package e2e.
func install(path string) error {
	if other := os.Getenv("E2E_SERVER"); other != "" {
		other, err := filepath.Abs(other)
		if err != nil {
			return err
		}
		return os.Symlink(other, path)
	}
	args := append([]string{"build", "-ldflags", "-X " + version + "release=" + testVersion + " -X " + version + "commit=" + testCommit}, buildFlags...)
	if out, err := exec.Command("go", append(args, "-o", path, ".")...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// write writes files into a directory, each atomically: name, content, and so on.
func write(t *testing.T, dir string, files ...string) {
	t.Helper()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		temp := filepath.Join(filepath.Dir(path), ".new")
		if err := os.WriteFile(temp, []byte(files[i+1]), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temp, path); err != nil {
			t.Fatal(err)
		}
	}
}

func cluster(name string) string {
	return `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster` + "\nname: " + name + "\n"
}

// Commands that end by themselves: their output and exit codes.
func TestCommands(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, port, _ := net.SplitHostPort(busy.Addr().String())

	dir := t.TempDir()
	write(t, dir, "good/a.yaml", cluster("a"), "one/a.yaml", cluster("a")+"nam: b\n",
		"many/a.yaml", cluster("a")+"nam: b\n", "many/b.yaml", cluster("b"), "many/c/c.yml", "# c\n"+cluster("b"), "many/d.json", "{")

	for _, tt := range []struct {
		args string
		code int
		want []string // lines or parts of them, in order
	}{
		{"version", 0, []string{"chancery ", "Envoy API v1.", "go1."}},
		{"--help", 0, []string{"xDS client", "chancery serve ./config", "Serve the configuration in a directory"}},
		{"serve --help", 0, []string{"chancery serve ./config", "--listen HOST:PORT", "127.0.0.1:18000)", "--allow-mass-delete"}},
		{"serve", 2, []string{"chancery: error: serve needs one directory or xds:// URL, or --store\n", "chancery: hint: see chancery serve --help\n"}},
		{"serve a b", 2, []string{"serve needs one directory or xds:// URL, not 2"}},
		{"serve good --lisen x", 2, []string{"unknown flag: --lisen: did you mean --listen?\n"}},
		{"serve good --listen x", 2, []string{`--listen: address "x": missing port`}},
		{"serve good --drain x", 2, []string{`--drain: "x" is not a duration`}},
		{"sevre good", 2, []string{`unknown command "sevre"`, "Did you mean this?", "serve"}},
		{"serve good --listen 127.0.0.1:" + port, 1, []string{"chancery: error: listen on 127.0.0.1:" + port, "in use", "chancery: hint: --listen"}},
		{"serve good --listen 127.0.0.1:1 --metrics-listen 127.0.0.1:1", 2, []string{"chancery: error: --listen and --metrics-listen: both use the address 127.0.0.1:1\n"}},
		{"serve good --listen 127.0.0.1:1,127.0.0.1:1", 2, []string{"chancery: error: --listen: 127.0.0.1:1 is given twice\n"}},
		{"serve good --max-request 32", 2, []string{"chancery: error: --max-request: 32 bytes is too small for any client: must be 1024 or more; give a unit, as in 64KiB\n"}}, // the user meant MiB
		{"serve good --max-node 64", 2, []string{"chancery: error: --max-node: 64 bytes is too small for any client: must be 256 or more; give a unit, as in 64KiB\n"}},
		{"serve good --max-connection-age 30ms", 2, []string{"chancery: error: --max-connection-age: must be at least 1s"}}, // the user meant 30m
		{"serve none", 1, []string{"chancery: error: none: no such file or directory\n"}},
		{"serve good/a.yaml", 1, []string{"chancery: error: good/a.yaml: not a directory\n"}},
		{"serve good --max-file 5B", 1, []string{"chancery: error: good/a.yaml: ", "more than the limit of 5 (--max-file)\n"}},
		{"serve one", 1, []string{"chancery: error: one/a.yaml:3:1: unknown field \"nam\" in Cluster"}},
		{"serve ./many", 1, []string{"many/a.yaml:3:1: unknown field \"nam\"", "many/c/c.yml:2:1: CDS \"b\" is already at many/b.yaml:1:1\n", "many/d.json:1:", "the file ends",
			"chancery: error: 3 errors in ./many: nothing is served\n"}},
	} {
		t.Run(tt.args, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), binary, strings.Fields(tt.args)...)
			cmd.Dir = dir
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			_ = cmd.Run() // the exit code reports errors
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			rest := out.String()
			for _, part := range tt.want {
				_, after, found := strings.Cut(rest, part)
				if !found {
					t.Errorf("no %q in its place in\n%s", part, out.String())
					break
				}
				rest = after
			}
		})
	}
}

// freePort is a port that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	for range 1000 { // not of those that the system gives to connections, which may take it at any time
		port := strconv.Itoa(10_000 + int(ports.Add(1)+portsFrom)%20_000)
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// ports counts the ports that tests have taken; each run begins at another one.
var (
	ports     atomic.Uint32
	portsFrom = rand.Uint32N(20_000)
)
