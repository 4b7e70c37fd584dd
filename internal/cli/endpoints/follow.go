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

// A nameFollower keeps endpoints of clusters at a server as the DNS has them.
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
		Short: "Keep the endpoints of clusters as the DNS has them",
		Long: `Follow looks a name up again and again, and registers its addresses as endpoints of a
cluster, until a signal ends it. dns:HOST:PORT has the addresses of HOST (A and AAAA).
srv:_SERVICE._PROTOCOL.NAME has those of the targets of SRV records, with their ports,
priorities and weights. With --file it follows many: each line has a CLUSTER and a name.

Names are in full: no list of domains is searched. What a name had stays when it cannot be
looked up. That it has no address any more counts when it was said three times, in --empty-after
at least. When follow ends, what it has registered stays, or goes with its lease if --ttl is
given; when it starts again, it removes what went meanwhile, and nothing that others have registered.

Exit codes: 0 ended by a signal; 1 a file cannot be read; 2 wrong usage; 3 the server lets
nobody in, or takes no endpoints.`,
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
			var err error
			if w.file != "" {
				err = readFollowed(cmd.InOrStdin(), w.file, names)
			} else {
				err = nameFollowed(names, args[0], args[1])
			}
			if err != nil {
				return err
			}
			return w.run(cmd, names)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&w.file, "file", "f", "", "`FILE` with a CLUSTER and a name in each line; - is stdin")
	f.StringVarP(&w.group, "group", "g", "", "`GROUP` of resources whose nodes get the endpoints; default if it is not given")
	f.DurationVar(&w.ttl, "ttl", 0, "`time` of the lease, 1s to 24h, after which all goes when follow has died; 0: none")
	f.StringSliceVar(&w.servers, "dns-server", nil, "`IP:PORT` of a server of the DNS, several times or with commas; those of /etc/resolv.conf if it is not given")
	f.DurationVar(&w.options.Timeout, "dns-timeout", 2*time.Second, "`time` for an answer; each server is asked twice")
	f.DurationVar(&w.options.MinTTL, "min-ttl", 5*time.Second, "least `time` until a name is looked up again")
	f.DurationVar(&w.options.MaxTTL, "max-ttl", 5*time.Minute, "most `time` until then")
	f.DurationVar(&w.empty, "empty-after", time.Minute, "least `time` in which it is said three times that a name has no address, before it has none; 0: it keeps the last ones")
	f.IntVar(&w.options.Most, "dns-concurrency", 16, "`number` of questions that are asked at once")
	w.LogFlags.Register(f)
	return w.command(cmd)
}

// nameFollowed adds a name that a cluster follows.
func nameFollowed(names map[dns.Name][]string, cluster, text string) error {
	n, err := dns.Parse(text)
	if err != nil {
		return err
	}
	if cluster == "" || len(cluster) > endpoints.MaxName {
		return fmt.Errorf("%q: a cluster has a name of 1 to %d bytes", cluster, endpoints.MaxName)
	}
	if !slices.Contains(names[n], cluster) {
		names[n] = append(names[n], cluster)
	}
	return nil
}

// readFollowed reads a file of lines with a cluster and a name each.
func readFollowed(stdin io.Reader, file string, names map[dns.Name][]string) error {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return cli.Fail(err, "")
		}
		defer f.Close()
		in = f
	}
	lines := bufio.NewScanner(in)
	for at := 1; lines.Scan(); at++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		err := errors.New("write CLUSTER dns:HOST:PORT or CLUSTER srv:NAME")
		if len(words) == 2 {
			err = nameFollowed(names, words[0], words[1])
		}
		if err != nil {
			return cli.Fail(fmt.Errorf("%s:%d: %w", file, at, err), "")
		}
	}
	if err := lines.Err(); err != nil {
		return cli.Fail(fmt.Errorf("%s: %w", file, err), "")
	}
	if len(names) == 0 {
		return cli.Fail(fmt.Errorf("%s: there is no name in it", file), "")
	}
	return nil
}

// run follows names until a signal ends it.
func (w *nameFollower) run(cmd *cobra.Command, names map[dns.Name][]string) error {
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
	daemon, err := w.Dial()
	if err != nil {
		return err
	}
	all := make([]dns.Name, 0, len(names))
	for n := range names {
		all = append(all, n)
	}
	reg := register.New(daemon, register.Options{TTL: w.ttl, Log: log})
	tell := func(n dns.Name, found []dns.Address) {
		for _, cluster := range names[n] {
			reg.Set(w.part(n, cluster), endpointsAt(found))
		}
	}
	w.options.Log, w.options.Servers = log, w.servers
	watcher, err := dns.New(all, tell, w.options)
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
			tell(n, known)
		}
	}
	log.Info("following names of the DNS", "names", len(all), "server", daemon.URL())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { watcher.Run(ctx) })
	if err := reg.Run(ctx); err != nil {
		return cli.AdminError(err)
	}
	return nil
}

// part is what follows a name in a cluster: whoever follows another one there has endpoints of its own.
func (w *nameFollower) part(n dns.Name, cluster string) register.Part {
	return register.Part{Group: w.group, Cluster: cluster, Owner: n.String()}
}

// known asks the server which addresses of a name are registered by somebody who followed it before, and waits until the
// server can say that: without it, the first look-up that fails would remove them.
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

// endpointsAt is what addresses are as endpoints.
func endpointsAt(found []dns.Address) []api.Endpoint {
	all := make([]api.Endpoint, len(found))
	for i, a := range found {
		all[i] = api.Endpoint{Address: a.Addr().String(), Port: int(a.Port()), Hostname: a.Host, Priority: min(a.Priority, endpoints.MaxPriority), Weight: a.Weight}
	}
	return all
}
