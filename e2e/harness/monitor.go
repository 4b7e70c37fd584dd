package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Monitor is the address (host:port) of a server's metrics, health and profiles.
type Monitor string

// alone is an HTTP client that keeps no connection: an idle one would count among the server's open files.
var alone = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Get returns the body of the answer at a path.
func (m Monitor) Get(path string) ([]byte, error) { return get(alone, string(m), path) }

// get returns the body of the answer at a path. An answer after 5 s, or with a status other than 200, is an error.
func get(client *http.Client, address, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", path, resp.Status, b)
	}
	return b, err
}

// Metrics returns the sums of the series of each name.
func (m Monitor) Metrics() (map[string]float64, error) {
	b, err := m.Get("/metrics")
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		line := lines.Text()
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(line[:i], "{")
		sums[name] += v
	}
	return sums, nil
}

// A Usage is the resource usage of a server.
type Usage struct {
	Streams, Goroutines, Files int
	Heap, Resident             float64 // MiB; Heap is the rest after two collections
	Pages                      float64 // MiB that the heap holds from the system, garbage and free space included
	Profiler                   float64 // MiB of call stacks that the memory profiler keeps outside of the heap
}

// Usage measures the server. The heap has only reachable memory: a second collection frees the objects that
// pools and finalizers kept through the first, and the profile reports the size before it allocates. The
// goroutines come from a profile, because the metric also counts the goroutines that gather metrics.
func (m Monitor) Usage() (u Usage, err error) {
	var profile []byte
	for range 2 {
		profile, err = m.Get("/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return u, err
		}
	}
	heap, err := figure(profile, "# HeapAlloc = ")
	if err != nil {
		return u, err
	}
	profile, err = m.Get("/debug/pprof/goroutine?debug=1")
	if err != nil {
		return u, err
	}
	goroutines, err := figure(profile, "goroutine profile: total ")
	if err != nil {
		return u, err
	}
	all, err := m.Metrics()
	if err != nil {
		return u, err
	}
	if all["xds_server_panics_total"] > 0 {
		return u, errors.New("the server has caught a panic")
	}
	return Usage{
		Streams: int(all["xds_server_streams_open"]), Goroutines: int(goroutines), Files: int(all["process_open_fds"]),
		Heap: heap / (1 << 20), Resident: all["process_resident_memory_bytes"] / (1 << 20),
		Pages:    (all["go_memstats_heap_sys_bytes"] - all["go_memstats_heap_released_bytes"]) / (1 << 20),
		Profiler: all["go_memstats_buck_hash_sys_bytes"] / (1 << 20),
	}, nil
}

// figure returns the number that follows a text.
func figure(of []byte, after string) (float64, error) {
	_, rest, _ := strings.Cut(string(of), after)
	rest, _, _ = strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(rest, 64)
	if err != nil {
		return 0, fmt.Errorf("there is no %q: %w", after, err)
	}
	return n, nil
}

func (u Usage) String() string {
	return fmt.Sprintf("%d streams, %d goroutines, %d files, heap %.1f MiB, resident %.0f MiB", u.Streams, u.Goroutines, u.Files, u.Heap, u.Resident)
}
