package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/e2e/tap"
)

// transports are the ways in which the commands ask a server over gRPC.
var transports = map[string][]string{
	"sotw ads":       nil,
	"delta ads":      {"--delta"},
	"sotw per type":  {"--per-type"},
	"delta per type": {"--delta", "--per-type"},
}

// fetches runs chancery fetch, and returns what it prints and how it ends.
func fetches(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"fetch"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exit := errors.AsType[*exec.ExitError](err); err != nil && !exit {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// fetchesAll fetches a world from a server, and checks it with chancery diff and chancery check.
func fetchesAll(t *testing.T, w world, url string, args ...string) {
	t.Helper()
	out, errs, code := fetches(t, append([]string{url}, args...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	got, want := t.TempDir(), t.TempDir()
	for dir, text := range map[string]string{got: out, want: string(w.documents(""))} {
		if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", got}, {"diff", "dir:" + want, "dir:" + got}} {
		if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}

// A watched is a running chancery watch, with its output.
type watched struct {
	t     *testing.T
	mu    sync.Mutex
	lines []string
}

func watch(t *testing.T, args ...string) *watched {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"watch", "-o", "jsonl"}, args...)...)
	harness.DieWithParent(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w, ended := &watched{t: t}, make(chan struct{})
	go func() {
		defer close(ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			var m struct {
				Kind, Type string
				Names      []string
			}
			if err := json.Unmarshal(s.Bytes(), &m); err != nil {
				m.Kind = err.Error()
			}
			w.mu.Lock()
			w.lines = append(w.lines, strings.TrimSpace(m.Kind+" "+m.Type+" "+strings.Join(m.Names, ",")))
			w.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
	})
	return w
}

// sees waits for a line, and drops the earlier lines.
func (w *watched) sees(line string) {
	w.t.Helper()
	eventually(w.t, 20*time.Second, "watch prints "+line, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		at := slices.Index(w.lines, line)
		if at < 0 {
			return fmt.Errorf("%q", w.lines)
		}
		w.lines = w.lines[at+1:]
		return nil
	})
}

func fetchWorld(gen string) world {
	return newWorld(
		edsCluster("backend", time.Second), assignment("backend", 8080), edsCluster("other", time.Second), assignment("other", 8081),
		httpListener("ingress", 10000, "ingress"), routes("ingress", gen, "backend"),
	)
}

func TestFetchFromChancery(t *testing.T) {
	t.Parallel()
	for name, args := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, fetchWorld("1"), renamed)
			url := fmt.Sprintf("xds://127.0.0.1:%d", r.Addr().Port)
			fetchesAll(t, r.world, url, args...)

			out, errs, code := fetches(t, append([]string{url, "cds", "other", "rds/none", "--timeout", "1s", "-o", "name"}, args...)...)
			if out != "CDS/other\n" || code != 4 || !strings.Contains(errs, "RDS/none") {
				t.Errorf("%d %q %q", code, out, errs)
			}
			out, errs, code = fetches(t, append([]string{url, "lds", "ingress", "--follow", "-o", "name"}, args...)...)
			if out != "CDS/backend\nEDS/backend\nLDS/ingress\nRDS/ingress\n" || code != 0 {
				t.Errorf("%d %q %q", code, out, errs)
			}
			p := r.Here()
			out, errs, code = fetches(t, append([]string{url, "cds", "--nack", "I do not like it", "--timeout", "1s"}, args...)...)
			if !strings.Contains(out, "nack") || code != 0 {
				t.Errorf("%d %q %q", code, out, errs)
			}
			if n := r.Since(p).NACKs("CDS").Where(func(n tap.Record) bool { return strings.Contains(fmt.Sprint(n), "I do not like it") }); len(n) != 1 {
				t.Errorf("the server got the NACKs %v, want one", n)
			}

			w := watch(t, append([]string{url}, args...)...)
			w.sees("updated RDS ingress")
			r.commit("the routes change", func(w world) { w.set(routes("ingress", "2", "other")) })
			w.sees("updated RDS ingress")
			r.commit("a cluster is gone", func(w world) { w.drop(edsCluster("backend", 0)) })
			w.sees("removed CDS backend")
			r.kill()
			lost := "lost"
			if strings.HasSuffix(name, "type") {
				lost = "lost RDS"
			}
			w.sees(lost)
			r.commit("the routes change", func(w world) { w.set(routes("ingress", "3", "other")) })
			r.restart()
			w.sees("updated RDS ingress")
		})
	}
}

func TestFetchFromChanceryByREST(t *testing.T) {
	t.Parallel()
	at := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	w := fetchWorld("1")
	d := newDaemon(t, w, renamed, "--rest-listen", at)
	fetchesAll(t, w, "xds://"+at, "--rest")
	watching := watch(t, "xds://"+at, "--rest")
	watching.sees("updated RDS ingress")
	w.set(routes("ingress", "2", "other"))
	d.write(w)
	watching.sees("updated RDS ingress")
}

// A wrong flag of fetch gets an error with a hint.
func TestFetchExplains(t *testing.T) {
	t.Parallel()
	rest := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	d := newDaemon(t, fetchWorld("1"), renamed, "--rest-listen", rest)
	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"nobody there":    {[]string{fmt.Sprintf("xds://127.0.0.1:%d", freePort(t))}, 3, "is the server running"},
		"no such host":    {[]string{"xds://nowhere.invalid:18000"}, 3, "is the host name right"},
		"HTTP/1.1":        {[]string{"xds://" + rest}, 3, "--rest"},
		"no TLS":          {[]string{"xds://" + d.addr(), "--tls"}, 3, "leave out the --tls flags"},
		"no such message": {[]string{"xds://" + d.addr(), "cds", "nothing", "--delta"}, 4, "has no CDS/nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs, code := fetches(t, append(tt.args, "--timeout", "10s")...)
			if code != tt.code || !strings.Contains(errs, tt.says) {
				t.Errorf("%d %s", code, errs)
			}
		})
	}
}
