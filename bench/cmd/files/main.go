// Command files measures the time from the save of a file until a real Envoy sends a request to the saved endpoint:
// for a file of endpoints that a rename replaces, and for a file of routes followed by SIGHUP or "chancery reload". SIGHUP
// measures the server alone: the command needs time to start.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/bench/process"
)

var (
	binary = flag.String("bin", "../bin/chancery", "the program")
	envoy  = flag.String("envoy", "../.cache/envoy/envoy-1.40.0", "Envoy")
	files  = flag.Int("files", 1000, "files, half of them with a cluster and half with its endpoints")
	saves  = flag.Int("saves", 200, "saves of each kind")
	pause  = flag.Duration("pause", 200*time.Millisecond, "time between an effect and the next save")
	extra  = flag.String("flags", "", "more flags of serve, separated by spaces")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	root, err := os.MkdirTemp("", "files")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	b := &site{dir: filepath.Join(root, "config")}
	for i := range b.upstreams {
		u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, i) }))
		defer u.Close()
		_, port, _ := net.SplitHostPort(u.Listener.Addr().String())
		b.upstreams[i] = port
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b.url = "http://" + free.Addr().String()
	_, b.port, _ = net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	if err := b.fill(); err != nil {
		return err
	}
	sock := "unix://" + filepath.Join(root, "admin.sock")
	s, err := process.Start(*binary, append(strings.Fields(*extra), "--admin-listen", sock, "--state-dir", filepath.Join(root, "state"), b.dir)...)
	if err != nil {
		return err
	}
	defer s.Kill()
	text, err := exec.Command(*binary, "bootstrap", "envoy", "--node", "bench", "--server", s.XDS, "--admin", "unix://"+filepath.Join(root, "envoy.sock")).Output()
	if err != nil {
		return err
	}
	config := filepath.Join(root, "bootstrap.yaml")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return err
	}
	e := exec.Command(*envoy, "-c", config, "--concurrency", "1", "--disable-hot-restart", "--log-level", "off")
	if err := e.Start(); err != nil {
		return err
	}
	defer func() { _ = e.Process.Kill(); _ = e.Wait() }()
	if _, err := b.until("0"); err != nil {
		return err
	}
	ended := func() error { return nil } // waits for the end of a command
	for _, kind := range []struct {
		name string
		save func(i int) error
	}{
		{"endpoints, by rename", func(i int) error { return b.save("e0.yaml", b.endpoints(0, i)) }},
		{"routes, and SIGHUP", func(i int) error { return cmp.Or(b.save("listener.yaml", b.listener(i)), s.Reload()) }},
		{"routes, and chancery reload", func(i int) error {
			if err := b.save("listener.yaml", b.listener(i)); err != nil {
				return err
			}
			reload := exec.Command(*binary, "reload", "--admin", sock)
			ended = reload.Wait
			return reload.Start()
		}},
	} {
		var all []time.Duration
		before, began := process.CPU(s), time.Now()
		for n := range *saves {
			time.Sleep(*pause)
			start := time.Now()
			if err := kind.save((n + 1) % 2); err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			at, err := b.until(strconv.Itoa((n + 1) % 2))
			if err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			if err := ended(); err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			all = append(all, at.Sub(start))
		}
		cpu := (process.CPU(s) - before) / time.Since(began).Seconds()
		slices.Sort(all)
		at := func(p float64) time.Duration { return all[int(p*float64(len(all)-1))].Round(100 * time.Microsecond) }
		fmt.Printf("%s, %d files: p50 %v, p90 %v, p99 %v, max %v; CPU of the server %.0f %% of one core\n", kind.name, *files, at(.5), at(.9), at(.99), at(1), 100*cpu)
	}
	return nil
}

// A site is a directory whose listener leads to one of two upstreams.
type site struct {
	dir, url, port string
	upstreams      [2]string // ports
}

// fill writes all files. The route and the endpoints of its cluster lead to the first upstream.
func (b *site) fill() error {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	err := b.save("listener.yaml", b.listener(0))
	for n := range *files / 2 {
		err = cmp.Or(err, b.save(fmt.Sprintf("c%d.yaml", n), fmt.Sprintf(`{"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: c%d, type: EDS, connect_timeout: 1s,
  eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}}`, n)), b.save(fmt.Sprintf("e%d.yaml", n), b.endpoints(n, n%2)))
	}
	return err
}

func (b *site) endpoints(n, upstream int) string {
	return fmt.Sprintf(`{"@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment, cluster_name: c%d,
  endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %s}}}}]}]}`, n, b.upstreams[upstream])
}

// listener has a route to c0 and one to c1, and tells them apart by the answer of the upstream.
func (b *site) listener(cluster int) string {
	return fmt.Sprintf(`{"@type": type.googleapis.com/envoy.config.listener.v3.Listener, name: in, address: {socket_address: {address: 127.0.0.1, port_value: %s}},
  filter_chains: [{filters: [{name: hcm, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager,
    stat_prefix: in, rds: {route_config_name: r, config_source: {ads: {}, resource_api_version: V3}},
    http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]}}]}]}
---
{"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration, name: r,
  virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: c%d}}]}]}
`, b.port, cluster)
}

// save replaces a file by a rename.
func (b *site) save(name, text string) error {
	temp := filepath.Join(b.dir, "."+name)
	return cmp.Or(os.WriteFile(temp, []byte(text), 0o600), os.Rename(temp, filepath.Join(b.dir, name)))
}

// until sends requests until the upstream answers, and returns the time of the answer.
func (b *site) until(answer string) (time.Time, error) {
	last := ""
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		resp, err := http.Get(b.url)
		if err != nil {
			last = err.Error()
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil && string(body) == answer {
			return time.Now(), nil
		}
		last = string(body)
	}
	return time.Time{}, errors.New("no effect in time; the last answer: " + last)
}
