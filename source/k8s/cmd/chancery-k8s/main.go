// Command chancery-k8s registers the endpoints of Kubernetes services at a Chancery server, and keeps
// them equal to the EndpointSlices.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/endpoints/register"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/k8s"
)

// Exit codes, as those of chancery.
const (
	ok       = 0
	failed   = 1
	misuse   = 2
	noServer = 3 // the server does not authorize this program, or does not accept endpoints
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stderr)
	cancel()
	os.Exit(code)
}

// The flags of the program.
type flags struct {
	target     adminclient.Target
	kubeconfig string
	group      string
	owner      string
	family     string
	ttl        time.Duration
	options    k8s.Options
}

const help = `Usage:
  chancery-k8s [flags] CLUSTER=NAMESPACE/SERVICE[:PORT]...

Registers the endpoints of services at a Chancery server that runs with --endpoints, and keeps
them equal to the EndpointSlices, until a signal ends it (docs/endpoint-sources.md). PORT is the name
or the number of a port of the slices; leave it out if there is only one. With --all, each TCP port of
each service is a cluster.

Exit codes: 0 ended by a signal; 1 no access to Kubernetes; 2 wrong usage; 3 the server refuses
this program, or does not accept endpoints.

Examples:
  chancery-k8s backend=shop/backend:http --admin unix:///run/chancery/admin.sock
  chancery-k8s --all --namespace shop --selector mesh=yes --admin https://chancery:18001 \
    --admin-ca ca.crt --admin-cert tls.crt --admin-key tls.key

Flags:
`

func (f *flags) set(w io.Writer) *pflag.FlagSet {
	s := pflag.NewFlagSet("chancery-k8s", pflag.ContinueOnError)
	s.SortFlags = false
	s.SetOutput(w)
	s.StringVar(&f.target.URL, "admin", adminclient.DefaultURL, "`URL` of the server's --admin-listen: http://HOST:PORT, https://HOST:PORT or unix:///PATH")
	s.StringVar(&f.target.TokenFile, "admin-token-file", "", "`FILE` with the token that the server requires")
	s.StringVar(&f.target.CA, "admin-ca", "", "`FILE` with the CA of the server's certificate")
	s.StringVar(&f.target.Cert, "admin-cert", "", "`FILE` with a client certificate, in PEM")
	s.StringVar(&f.target.Key, "admin-key", "", "`FILE` with its private key")
	s.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` with the address of the API server; default: the service account of the pod")
	s.StringVar(&f.options.Namespace, "namespace", "", "`NAMESPACE` to watch; default: all")
	s.BoolVar(&f.options.All, "all", false, "follow each TCP port of each service, in addition to the arguments")
	s.StringVar(&f.options.Selector, "selector", "", "`LABELS` of the services to follow, such as mesh=yes; slices have the labels of their service")
	s.StringVar(&f.options.Names, "cluster-name", k8s.DefaultNames, "`NAME` of the clusters of --all")
	s.StringVar(&f.options.Region, "region", "", "`NAME` of the region of all endpoints; zones come from their nodes")
	s.StringVar(&f.family, "family", "", "ipv4 or ipv6: the addresses to use of a service with both; default: both")
	s.StringVar(&f.group, "group", "", "`GROUP` of resources whose nodes get the endpoints; default: the default group")
	s.StringVar(&f.owner, "owner", "k8s", "`NAME` at the beginning of the ids of the endpoints: a different one for each Kubernetes cluster")
	s.DurationVar(&f.ttl, "ttl", 0, "`time` of the lease, 1s to 24h: the endpoints are removed that long after this program died; 0: no lease")
	s.Usage = func() { fmt.Fprint(w, help, s.FlagUsagesWrapped(100)) }
	return s
}

// run runs the program. It returns the exit code.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	var f flags
	set := f.set(stderr)
	if err := set.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return ok
	} else if err != nil {
		return say(stderr, misuse, err)
	}
	for _, text := range set.Args() {
		m, err := k8s.ParseMapping(text)
		if err != nil {
			return say(stderr, misuse, err)
		}
		f.options.Mappings = append(f.options.Mappings, m)
	}
	if f.owner == "" || strings.Contains(f.owner, "/") {
		return say(stderr, misuse, errors.New("--owner: must be a name without a slash"))
	}
	if f.ttl != 0 && (f.ttl < time.Second || f.ttl > 24*time.Hour) {
		return say(stderr, misuse, errors.New("--ttl: must be 1s to 24h"))
	}
	f.options.Families = k8s.Families(f.family)
	f.options.Log = slog.New(slog.NewJSONHandler(text.JSONWriter(stderr), nil))
	klog.SetSlogLogger(f.options.Log)
	return f.follow(ctx, stderr)
}

// say prints an error.
func say(stderr io.Writer, code int, err error) int {
	fmt.Fprintln(stderr, "chancery-k8s: error:", err)
	if code == misuse {
		fmt.Fprintln(stderr, "chancery-k8s: hint: see chancery-k8s --help")
	}
	return code
}

// follow follows slices until ctx is done.
func (f *flags) follow(ctx context.Context, stderr io.Writer) int {
	daemon, err := adminclient.Dial(f.target)
	if err != nil {
		return say(stderr, misuse, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return say(stderr, failed, err)
	}
	config.UserAgent = "chancery-k8s"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return say(stderr, failed, err)
	}
	reg := register.New(daemon, register.Options{TTL: f.ttl, Log: f.options.Log})
	part := func(cluster string) register.Part {
		return register.Part{Group: f.group, Cluster: cluster, Owner: f.owner}
	}
	f.options.Fault = func(why string) {
		if why != "" {
			why = "chancery-k8s (" + f.owner + ") cannot watch endpoint slices, so the last endpoints stay: " + why
		}
		reg.Fault(why)
	}
	told := map[string]bool{} // only for the goroutine of the watcher
	w, err := k8s.New(client, func(cluster string, all []api.Endpoint) {
		told[cluster] = true
		f.options.Log.Info("endpoints of a cluster changed", "cluster", cluster, "endpoints", len(all))
		reg.Set(part(cluster), all)
	}, f.options)
	if err != nil {
		return say(stderr, misuse, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Clusters of this owner from before that are not followed any more are removed once all slices are known.
	before, err := reg.Clusters(ctx, f.group, f.owner)
	if err != nil && ctx.Err() == nil {
		return say(stderr, noServer, err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		w.Run(ctx, func() {
			f.options.Log.Info("following endpoint slices", "clusters", len(told))
			for _, c := range before {
				if !told[c] {
					reg.Set(part(c), nil)
				}
			}
		})
	})
	if err := reg.Run(ctx); err != nil {
		return say(stderr, noServer, err)
	}
	return ok
}
