package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// The path of a commit to its clients is exported to a collector that the environment names.
func TestTraces(t *testing.T) {
	var mu sync.Mutex
	var got bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			if z, err := gzip.NewReader(r.Body); err == nil {
				body = z
			}
		}
		if r.URL.Path == "/v1/traces" {
			_, _ = io.Copy(&got, body)
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	d := serve(t, nil, "a.yaml", cluster("a"))
	s := d.clusters()
	r, err := s.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	s.send(&discoveryv3.DiscoveryRequest{VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce()})
	write(t, d.dir, "b.yaml", cluster("b"))
	if r, err = s.stream.Recv(); err != nil {
		t.Fatal(err)
	}
	s.send(&discoveryv3.DiscoveryRequest{VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce()})
	has := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, want := range []string{"xds.commit", "xds.push", "xds.ack", "chancery"} {
			if !bytes.Contains(got.Bytes(), []byte(want)) {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(10 * time.Second); !has(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the collector did not get the commit and its ACK")
		}
	}
}
