package endpoints

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/internal/endpoints/dns"
	"github.com/chancery-xds/chancery/internal/endpoints/register"
)

// A nameFollower registers the addresses of DNS names as endpoints of clusters at a server.
type nameFollower struct {
	changeFlags
	cli.LogFlags
	options dns.Options
	file    string
	servers []string
	ttl     time.Duration
	empty   time.Duration
}

func endpointsFollow() *cobra.Command {
	var w nameFollower
	cmd := &cobra.Command{
		Use:   "follow CLUSTER dns:HOST:PORT|srv:NAME",
		Short: "Register the addresses of DNS names as endpoints, and keep them up to date",
		Long: `Follow looks up a name repeatedly, and registers its addresses as endpoints of a cluster,
until a signal ends it. dns:HOST:PORT has the addresses of HOST (A and AAAA).
srv:_SERVICE._PROTOCOL.NAME has the addresses of the targets of SRV records, with their
ports, priorities and weights. With --file it follows several names: each line has a CLUSTER
and a name.

Names are fully qualified: no search domains are tried. When a look-up fails, the endpoints
stay. They are removed only after three empty answers in a row, over at least --empty-after.
When follow ends, its endpoints stay, or expire with their lease if --ttl is given. When it
starts again, it removes addresses that have disappeared meanwhile, and no endpoints that
others have registered.

Exit codes: 0 ended by a signal; 1 a file cannot be read; 2 wrong usage; 3 the server denies
access, or does not accept endpoints.`,
		Example: `  chancery endpoints follow backend dns:backend.example.com:8080 --admin unix:///run/chancery/admin.sock
  chancery endpoints follow backend srv:_http._tcp.backend.example.com --ttl 30s
  chancery endpoints follow --file names.txt --dns-server 10.0.0.2:53`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case w.file != "" && len(args) != 0:
				return errors.New("follow --file needs no other arguments")
			case w.file == "" && len(args) != 2:
				return errors.New("follow needs CLUSTER and dns:HOST:PORT or srv:NAME, or --file")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			names := map[dns.Name][]string{}
			var bad []badLine
			var err error
			if w.file != "" {
				bad, err = readFollowed(cmd.InOrStdin(), w.file, names)
			} else {
				err = nameFollowed(names, args[0], args[1])
			}
			if err != nil {
				return err
			}
			return w.run(cmd, names, bad)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&w.file, "file", "f", "", "`FILE` with a CLUSTER and a name in each line; - is stdin")
	f.StringVarP(&w.group, "group", "g", "", "`GROUP` of resources whose nodes get the endpoints; default: the default group")
	f.DurationVar(&w.ttl, "ttl", 0, "`time` of the lease, 1s to 24h, after which the endpoints expire if follow has ended; 0: no lease")
	f.StringSliceVar(&w.servers, "dns-server", nil, "`IP:PORT` of a DNS server; may be repeated; default: those in /etc/resolv.conf")
	f.DurationVar(&w.options.Timeout, "dns-timeout", 2*time.Second, "maximum `time` to wait for an answer; each server is asked twice")
	f.DurationVar(&w.options.MinTTL, "min-ttl", 5*time.Second, "minimum `time` between two look-ups of a name")
	f.DurationVar(&w.options.MaxTTL, "max-ttl", 5*time.Minute, "maximum `time` between two look-ups of a name")
	f.DurationVar(&w.empty, "empty-after", time.Minute, "minimum `time` with three empty answers in a row before the endpoints of a name are removed; 0: keep the last ones")
	f.IntVar(&w.options.Most, "dns-concurrency", 16, "maximum `number` of look-ups at a time")
	w.LogFlags.Register(f)
	cli.TakeVariables(cmd)
	return w.command(cmd)
}

// nameFollowed adds a cluster whose endpoints are the addresses of a DNS name.
func nameFollowed(names map[dns.Name][]string, cluster, text string) error {
	n, err := dns.Parse(text)
	if err != nil {
		return err
	}
	if cluster == "" || len(cluster) > endpoints.MaxName {
		return fmt.Errorf("%q: the name of a cluster has 1 to %d bytes", cluster, endpoints.MaxName)
	}
	if !slices.Contains(names[n], cluster) {
		names[n] = append(names[n], cluster)
	}
	return nil
}

// A badLine is a line of a file of names that cannot be followed.
type badLine struct {
	number int
	err    error
}

// readFollowed reads a file in which each line has a cluster and a DNS name. A bad line does not spoil the others. A
// file without a good line is an error.
func readFollowed(stdin io.Reader, file string, names map[dns.Name][]string) (bad []badLine, err error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, cli.Fail(err, "")
		}
		defer f.Close()
		in = f
	}
	lines := bufio.NewScanner(in)
	for at := 1; lines.Scan(); at++ {
		text := lines.Text()
		if at == 1 {
			text = strings.TrimPrefix(text, "\ufeff") // some editors write a byte order mark
		}
		text, _, _ = strings.Cut(text, "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		err := errors.New("write CLUSTER dns:HOST:PORT or CLUSTER srv:NAME")
		if len(words) == 2 {
			err = nameFollowed(names, words[0], words[1])
		}
		if err != nil {
			bad = append(bad, badLine{at, err})
		}
	}
	switch err := lines.Err(); {
	case err != nil:
		return nil, cli.Fail(fmt.Errorf("%s: %w", file, err), "")
	case len(names) == 0 && len(bad) > 0:
		return nil, cli.Fail(fmt.Errorf("%s:%d: %w", file, bad[0].number, bad[0].err), "")
	case len(names) == 0:
		return nil, cli.Fail(fmt.Errorf("%s: the file contains no names", file), "")
	}
	return bad, nil
}

// run follows names until the program gets a signal.
func (w *nameFollower) run(cmd *cobra.Command, names map[dns.Name][]string, bad []badLine) error {
	w.options.EmptyAfter = w.empty
	if w.empty <= 0 {
		w.options.EmptyAfter = -1
	}
	if w.ttl != 0 && (w.ttl < endpoints.MinTTL || w.ttl > endpoints.MaxTTL) {
		return fmt.Errorf("--ttl: must be %v to %v", endpoints.MinTTL, endpoints.MaxTTL)
	}
	log, err := w.LogFlags.Open(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer w.LogFlags.Close()
	for _, line := range bad {
		log.Warn("a line of --file is not followed", "file", w.file, "line", line.number, "error", line.err)
	}
	daemon, err := w.Dial()
	if err != nil {
		return err
	}
	all := make([]dns.Name, 0, len(names))
	for n := range names {
		all = append(all, n)
	}
	reg := register.New(daemon, register.Options{TTL: w.ttl, Log: log})
	registerFound := func(n dns.Name, found []dns.Address) {
		for _, cluster := range names[n] {
			reg.Set(w.part(n, cluster), endpointsAt(found))
		}
	}
	w.options.Log, w.options.Servers, w.options.Fault = log, w.servers, reg.Fault
	watcher, err := dns.New(all, registerFound, w.options)
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(cli.Context(cmd), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	for _, n := range all {
		known, err := w.known(ctx, reg, n, names[n])
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if len(known) > 0 {
			watcher.Known(n, known)
			registerFound(n, known)
		}
	}
	log.Info("following DNS names", "names", len(all), "server", daemon.URL())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { watcher.Run(ctx) })
	if err := reg.Run(ctx); err != nil {
		return cli.AdminError(err)
	}
	return nil
}

// part returns the part of a cluster's endpoints that belongs to a name. Each name has a part of its own,
// so that two names of a cluster do not remove each other's endpoints.
func (w *nameFollower) part(n dns.Name, cluster string) register.Part {
	return register.Part{Group: w.group, Cluster: cluster, Owner: n.String()}
}

// known returns the addresses of a name that an earlier follower registered. It waits until the server
// answers. Without these addresses, the first failed look-up would remove the endpoints.
func (w *nameFollower) known(ctx context.Context, reg *register.Registrar, n dns.Name, clusters []string) (all []dns.Address, err error) {
	for _, cluster := range clusters {
		there, err := reg.Await(ctx, w.part(n, cluster))
		if err != nil {
			return nil, cli.AdminError(err)
		}
		for _, e := range there {
			if addr, err := netip.ParseAddr(e.Address); err == nil {
				all = append(all, dns.Address{AddrPort: netip.AddrPortFrom(addr, uint16(e.Port)), Host: e.Hostname, Priority: e.Priority, Weight: e.Weight})
			}
		}
	}
	return all, nil
}

// endpointsAt converts addresses to endpoints.
func endpointsAt(found []dns.Address) []api.Endpoint {
	all := make([]api.Endpoint, len(found))
	for i, a := range found {
		all[i] = api.Endpoint{Address: a.Addr().String(), Port: int(a.Port()), Hostname: a.Host, Priority: min(a.Priority, endpoints.MaxPriority), Weight: a.Weight}
	}
	return all
}
