// Command pages measures the CPU that a server spends on open pages of operators while its clients cause events. The
// server is the program itself, and the clients are e2e/crowd, each in a process of its own. A page is its requests:
// the events, and after each batch of them the status and the first clients, at most once a second.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/bench/process"
)

var (
	binary  = flag.String("bin", "../bin/chancery", "the program")
	crowd   = flag.String("crowd", "../bin/crowd", "the clients, e2e/crowd")
	n       = flag.Int("n", 10_000, "clients")
	events  = flag.Int("events", 1000, "events each second")
	pages   = flag.Int("pages", 20, "open pages")
	length  = flag.Duration("for", 20*time.Second, "duration of each measurement")
	read    atomic.Int64 // events that pages got
	answers atomic.Int64
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	admin := l.Addr().String()
	l.Close()
	dir, err := os.MkdirTemp("", "pages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := process.Start(*binary, "../examples/quickstart", "--admin-listen", admin, "--state-dir", filepath.Join(dir, "state"))
	if err != nil {
		return err
	}
	defer server.Kill()
	clients := exec.Command(*crowd, "-server", server.XDS, "-n", fmt.Sprint(*n), "-events", fmt.Sprint(*events))
	clients.Stderr = os.Stderr
	in, err := clients.StdinPipe()
	if err != nil {
		return err
	}
	out, err := clients.StdoutPipe()
	if err != nil {
		return err
	}
	if err := clients.Start(); err != nil {
		return err
	}
	defer clients.Wait()
	defer in.Close()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		return fmt.Errorf("the clients are not ready: %w", err)
	}
	time.Sleep(5 * time.Second)
	without := share(server)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range *pages {
		go follow(ctx, "http://"+admin)
	}
	time.Sleep(3 * time.Second)
	read.Store(0)
	answers.Store(0)
	with := share(server)
	s := length.Seconds()
	fmt.Printf("%d clients, %d pages: %.1f %% of a core for them (%.1f %% without, %.1f %% with); each page got %.0f events and %.1f answers a second\n",
		*n, *pages, with-without, without, with, float64(read.Load())/s/float64(*pages), float64(answers.Load())/s/float64(*pages))
	return nil
}

// share returns the share of a core that the server uses, in percent.
func share(s *process.Server) float64 {
	before, began := process.CPU(s), time.Now()
	time.Sleep(*length)
	return 100 * (process.CPU(s) - before) / time.Since(began).Seconds()
}

// follow does what an open page does.
func follow(ctx context.Context, url string) {
	changed := make(chan struct{}, 1)
	for _, view := range []string{"status?replicas=1", "clients?all=1&limit=60&replicas=1"} {
		go func() {
			for range changed {
				if body, err := get(ctx, url+"/api/v1/"+view+"&pace=1s"); err == nil {
					_, _ = io.Copy(io.Discard, body)
					body.Close()
					answers.Add(1)
				}
			}
		}()
	}
	body, err := get(ctx, url+"/api/v1/events?pace=250ms")
	if err != nil {
		log.Print(err)
		return
	}
	defer body.Close()
	for lines := bufio.NewScanner(body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data:") {
			read.Add(1)
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}
}

func get(ctx context.Context, url string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, answer.Status)
	}
	return answer.Body, nil
}
