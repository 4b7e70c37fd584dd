package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/chancery-xds/chancery/e2e/harness"
)

const sovereignAt = "../.cache/sovereign"

// A sovereign is a server in Python that answers polls over REST.
type sovereign struct {
	t    *testing.T
	dir  string
	addr string
	cmd  *exec.Cmd
}

var sovereignTypes = map[string]string{"Cluster": "clusters", "Listener": "listeners", "RouteConfiguration": "routes", "ClusterLoadAssignment": "endpoints"}

func newSovereign(t *testing.T, w world) *sovereign {
	t.Helper()
	harness.Needs(t, sovereignAt)
	s := &sovereign{t: t, dir: t.TempDir(), addr: fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	var templates []map[string]any
	for _, typ := range sovereignTypes {
		templates = append(templates, map[string]any{"type": typ, "spec": map[string]any{
			"protocol": "file", "serialization": "jinja2", "path": filepath.Join(s.dir, typ+".yaml"),
		}})
	}
	s.write("sovereign.yaml", map[string]any{"templates": map[string]any{"default": templates}})
	s.serve(w)
	t.Cleanup(s.stop)
	return s
}

// write writes a file, in JSON.
func (s *sovereign) write(name string, content any) {
	s.t.Helper()
	b, err := json.Marshal(content)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, name), b, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// serve starts it anew with a world: it reads its templates once.
func (s *sovereign) serve(w world) {
	s.t.Helper()
	s.stop()
	all := map[string][]json.RawMessage{}
	for _, typ := range sovereignTypes {
		all[typ] = []json.RawMessage{}
	}
	for k, m := range w {
		name, _, _ := strings.Cut(k, "/")
		b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err != nil {
			s.t.Fatal(err)
		}
		all[sovereignTypes[name]] = append(all[sovereignTypes[name]], b)
	}
	for typ, resources := range all {
		s.write(typ+".yaml", map[string]any{"resources": resources})
	}
	abs, err := filepath.Abs(sovereignAt)
	if err != nil {
		s.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	_, port, _ := strings.Cut(s.addr, ":")
	s.cmd = exec.Command("python3", "-m", "sovereign.server")
	s.cmd.Dir = s.dir
	s.cmd.Env = append(os.Environ(), "PYTHONPATH="+abs, "PYTHONDONTWRITEBYTECODE=1", "SOVEREIGN_CONFIG=file://"+filepath.Join(s.dir, "sovereign.yaml"),
		"SOVEREIGN_HOST=127.0.0.1", "SOVEREIGN_PORT="+port, "SOVEREIGN_WORKERS=1")
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	harness.DieWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, 60*time.Second, "sovereign answers", func() error {
		r, err := http.Get("http://" + s.addr + "/healthcheck")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, harness.Tail(filepath.Join(s.dir, "log"), 20))
		}
		return r.Body.Close()
	})
}

// stop ends it and its worker. When asked to, they end after a minute, for a thread of the worker does not.
func (s *sovereign) stop() {
	if s.cmd == nil {
		return
	}
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	_ = s.cmd.Wait()
	s.cmd = nil
}

func TestFetchFromSovereign(t *testing.T) {
	t.Parallel()
	w := fetchWorld("1")
	s := newSovereign(t, w)
	url := "xds://" + s.addr + "?rest&cluster=edge&node=edge-1"
	fetchesAll(t, w, url)
	out, errs, code := fetches(t, url, "lds", "ingress", "--follow", "-o", "name")
	if out != "CDS/backend\nEDS/backend\nLDS/ingress\nRDS/ingress\n" || code != 0 {
		t.Errorf("%d %q %q", code, out, errs)
	}
	out, errs, code = fetches(t, url, "cds", "other", "-o", "name")
	if out != "CDS/other\n" || code != 0 {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if _, errs, code := fetches(t, "xds://"+s.addr+"?node=edge-1", "--rest"); code == 0 || !strings.Contains(errs, "422") {
		t.Errorf("without a cluster: %d %s", code, errs)
	}
	watching := watch(t, url)
	watching.sees("updated RDS ingress")
	w.set(routes("ingress", "2", "other"))
	s.serve(w)
	watching.sees("updated RDS ingress")
}
