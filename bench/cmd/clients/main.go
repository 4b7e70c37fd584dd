// Command clients measures the cost of clients that watch N clusters while one cluster at a time changes:
// Chancery's client, go-control-plane's, and the one in gRPC. This process is the server, Chancery's. Each
// client runs in its own process (-as), so that its CPU and memory can be measured.
//
// There are two workloads. In "clusters", a client watches all clusters by a wildcard. In "tree", it watches a
// listener, its routes, their clusters and endpoints, as gRPC does for a channel.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

var (
	n       = flag.Int("n", 10_000, "clusters")
	reps    = flag.Int("reps", 1, "number of rounds; each round measures each client once")
	period  = flag.Duration("for", 5*time.Second, "duration of the changes, one cluster after the other")
	only    = flag.String("only", "", "clients, separated by commas; default: all")
	patient = flag.Duration("patience", 2*time.Minute, "time within which a client must have all resources")
	as      = flag.String("as", "", "run as this client (only for the parent process)")
	address = flag.String("server", "", "the address of the server (only for the parent process)")
	profile = flag.String("profile", "", "a directory for profiles of each client: CPU, and the heap when the client has all resources")
)

// A result has the figures of one client.
type result struct {
	Client   string  `json:"client"`
	Clusters int     `json:"clusters"`
	Rep      int     `json:"rep"`
	ReadyS   float64 `json:"ready_s"`     // until the client had accepted all resources
	ReadyCPU float64 `json:"ready_cpu_s"` // the client's CPU until then
	HeapMB   float64 `json:"heap_mb"`     // live heap, after a collection
	RSSMB    float64 `json:"rss_mb"`      // resident memory after that
	Updates  int     `json:"updates"`
	CPUus    float64 `json:"cpu_us_update"`
	P50us    float64 `json:"p50_us"` // from the commit to the ACK
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	if *as != "" {
		if err := be(*as); err != nil {
			log.Fatalf("%s: %v", *as, err)
		}
		return
	}
	names := strings.Split(*only, ",")
	if *only == "" {
		names = names[:0]
		for name := range clients {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	for rep := range *reps {
		for _, name := range names {
			if clients[name] == nil {
				log.Fatalf("unknown client %q", name)
			}
			r, err := measure(name)
			if err != nil {
				log.Fatalf("%s: %v", name, err)
			}
			r.Rep = rep
			if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
				log.Fatal(err)
			}
		}
	}
}

// be runs as this client until the parent ends it.
func be(name string) error {
	if *profile != "" {
		f, err := os.Create(filepath.Join(*profile, name+".pb.gz"))
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return clients[name](*address)
}

// measure runs one client.
func measure(name string) (r result, err error) {
	s, err := newServer(*n)
	if err != nil {
		return r, err
	}
	defer s.stop()
	p, err := start(name, s.address)
	if err != nil {
		return r, err
	}
	defer p.stop()
	begin := time.Now()
	last, err := s.all(begin.Add(*patient))
	if err != nil {
		return r, err
	}
	r = result{Client: name, Clusters: *n, ReadyS: last.Sub(begin).Seconds(), ReadyCPU: p.cpu().Seconds()}
	r.HeapMB, r.RSSMB, err = p.memory()
	if err != nil {
		return r, err
	}
	before, until := p.cpu(), time.Now().Add(*period)
	var took []time.Duration
	for time.Now().Before(until) {
		d, err := s.change(len(took))
		if err != nil {
			return r, err
		}
		took = append(took, d)
	}
	r.Updates = len(took)
	r.CPUus = float64((p.cpu() - before).Microseconds()) / float64(len(took))
	slices.Sort(took)
	r.P50us = float64(took[len(took)/2].Microseconds())
	return r, nil
}

// A process is a running client.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(name, address string) (*process, error) {
	p := &process{cmd: exec.Command(os.Args[0], "-as", name, "-server", address, "-profile", *profile)}
	p.cmd.Stderr = os.Stderr
	p.cmd.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP_CONFIG="+fmt.Sprintf(bootstrap, address))
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, bufio.NewReader(out)
	return p, p.cmd.Start()
}

const bootstrap = `{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}], "node": {"id": "bench"}}`

// memory makes the client collect garbage, and returns its memory in MB.
func (p *process) memory() (heap, rss float64, err error) {
	_, err = fmt.Fprintln(p.in, "memory")
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Fscan(p.out, &heap, &rss)
	return heap, rss, err
}

func (p *process) stop() {
	p.in.Close() // the client ends
	p.cmd.Wait()
}
