package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/internal/yamlkeys"
)

// Command returns the command endpoints with its subcommands.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "endpoints put|rm|ls|follow",
		Short: "Register endpoints at a running server, or make it follow DNS names",
		Long: `A server that runs with --endpoints accepts endpoints of clusters over its admin API while
it serves, with a lease or without (docs/endpoints.md). As long as a cluster is registered,
the server serves its registered endpoints instead of those in files or revisions.`,
		Example: "  chancery endpoints put backend 10.0.0.1:8080 --ttl 30s\n  chancery endpoints ls",
	}
	cmd.AddCommand(endpointsPut(), endpointsRemove(), endpointsList(), endpointsFollow())
	return cmd
}

// changeFlags are the flags that all subcommands have.
type changeFlags struct {
	cli.AdminFlags
	group string
}

func (e *changeFlags) command(cmd *cobra.Command) *cobra.Command {
	e.AdminFlags.Register(cmd.Flags())
	cli.ServerUsage(cmd)
	return cmd
}

func endpointsPut() *cobra.Command {
	var e changeFlags
	var one api.Endpoint
	var locality api.Locality
	var ttl time.Duration
	var file string
	cmd := &cobra.Command{
		Use:   "put CLUSTER ADDRESS:PORT",
		Short: "Register an endpoint or renew its lease, or register all endpoints of a cluster from a file",
		Long: `Put registers an endpoint in place of the one with the same id. With --ttl the server removes
it after that time, unless the same endpoint is put again in time. With --file it registers all
endpoints of the cluster, and removes the others: the file (- is stdin) has the body of PUT
/api/v1/endpoints/CLUSTER. The server registers the valid endpoints of the file even if it
rejects others; a rejected one that was registered before stays as it was.

Exit codes: 0 registered; 1 the server rejects it, or some endpoints of the file; 2 wrong usage; 3 no server answers, or
it denies access or does not accept endpoints; 4 the group does not exist.`,
		Example: `  chancery endpoints put backend 10.0.0.1:8080 --admin unix:///run/chancery/admin.sock
  chancery endpoints put backend 10.0.0.1:8080 --id pod-1 --ttl 30s --weight 3 --zone eu-1a
  chancery endpoints put backend --file endpoints.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case one.Weight == 0 && cmd.Flags().Changed("weight"):
				return errors.New("--weight must be 1 to 100000: to send no traffic to an endpoint, give --health DRAINING or remove it")
			case file != "" && len(args) != 1:
				return errors.New("put --file needs one CLUSTER")
			case file == "" && len(args) != 2:
				return errors.New("put needs CLUSTER and ADDRESS:PORT, or --file")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				all, err := readEndpoints(cmd.InOrStdin(), file)
				if err != nil {
					return err
				}
				if ttl > 0 {
					all.TTL = ttl.String()
				}
				return e.change(cmd, func(ctx context.Context, d *adminclient.Client) (*api.EndpointsResult, error) {
					return d.PutEndpoints(ctx, e.group, args[0], all)
				})
			}
			host, port, err := net.SplitHostPort(args[1])
			if err == nil {
				one.Port, err = strconv.Atoi(port)
			}
			if err != nil {
				return fmt.Errorf("%q: write ADDRESS:PORT, such as 10.0.0.1:8080 or [::1]:8080", args[1])
			}
			one.Address = host
			if locality != (api.Locality{}) {
				one.Locality = &locality
			}
			if ttl > 0 {
				one.TTL = ttl.String()
			}
			id := one.ID
			if id == "" {
				id = net.JoinHostPort(host, port)
			}
			return e.change(cmd, func(ctx context.Context, d *adminclient.Client) (*api.EndpointsResult, error) {
				return d.PutEndpoint(ctx, e.group, args[0], id, one)
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&one.ID, "id", "", "`NAME` of the endpoint in its cluster; default: ADDRESS:PORT")
	f.DurationVar(&ttl, "ttl", 0, "`time` of the lease, 1s to 24h; 0: none")
	f.StringVar(&one.Health, "health", "", "HEALTHY, UNHEALTHY, DRAINING, TIMEOUT or DEGRADED")
	f.IntVar(&one.Weight, "weight", 0, "`number` from 1 to 100000: share of the cluster's traffic")
	f.IntVar(&one.Priority, "priority", 0, "`number` from 0, the first choice, to 127")
	f.StringVar(&locality.Region, "region", "", "`NAME` of the region")
	f.StringVar(&locality.Zone, "zone", "", "`NAME` of the zone")
	f.StringVar(&one.Hostname, "hostname", "", "`NAME` for health checks and rewrites of the host")
	f.StringVarP(&file, "file", "f", "", "`FILE` with all endpoints of the cluster, in JSON")
	f.StringVarP(&e.group, "group", "g", "", "`GROUP` of resources whose nodes get the endpoint; default: the default group")
	return e.command(cmd)
}

// endpointsFile is an [api.EndpointsRequest] whose endpoints only the server reads, because it rejects bad ones alone.
type endpointsFile struct {
	TTL       string            `json:"ttl,omitempty"`
	Endpoints []json.RawMessage `json:"endpoints"`
}

// readEndpoints reads the body of a PUT of a cluster from a file.
func readEndpoints(stdin io.Reader, file string) (all endpointsFile, err error) {
	var b []byte
	if file == "-" {
		b, err = io.ReadAll(stdin)
	} else {
		b, err = os.ReadFile(file)
	}
	if err != nil {
		return all, cli.Fail(err, "")
	}
	if err := checkEndpointsFile(file, b); err != nil {
		return all, cli.Fail(err, `write {"ttl": "30s", "endpoints": [{"address": "10.0.0.1", "port": 8080}]}`)
	}
	if err := json.Unmarshal(protoyaml.WithoutBOM(b), &all); err != nil {
		return all, cli.Fail(fmt.Errorf("%s: %w", file, err), "")
	}
	return all, nil
}

// checkEndpointsFile returns the first mistake of an [endpointsFile] with its place.
func checkEndpointsFile(file string, b []byte) error {
	root, err := protoyaml.ParseJSON(file, b)
	if err != nil {
		return err
	}
	r := yamlkeys.Reader{Decoder: protoyaml.Decoder{File: file, Source: b}}
	if root.Kind != yaml.MappingNode {
		r.Report(root, "", "", "an object is needed, not %s", yamlkeys.What(root))
	} else {
		r.Each(findings.WrongValue, root, "", "the file", yamlkeys.Keys{
			"ttl": func(n *yaml.Node, path string) { r.Text(n, path) },
			"endpoints": func(n *yaml.Node, path string) {
				if n.Kind != yaml.SequenceNode {
					r.Report(n, path, "", "a list is needed, not %s", yamlkeys.What(n))
				}
			},
		}, nil)
	}
	if len(r.Problems) > 0 {
		return r.Problems[0]
	}
	return nil
}

// change requests a change of endpoints and prints its result.
func (e *changeFlags) change(cmd *cobra.Command, question func(context.Context, *adminclient.Client) (*api.EndpointsResult, error)) error {
	r, err := cli.Ask(cmd, &e.AdminFlags, question)
	if err != nil {
		return err
	}
	result := "ok"
	if len(r.Errors) > 0 {
		result = fmt.Sprintf("%d rejected", len(r.Errors))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %d set, %d unchanged, %d removed\n", result, r.Set, r.Unchanged, r.Removed)
	if r.Warning != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "chancery: warning: "+text.Line(r.Warning))
	}
	for _, one := range r.Errors {
		fmt.Fprintln(cmd.ErrOrStderr(), "chancery: "+text.Line(one.Field+": "+one.Message))
	}
	if len(r.Errors) > 0 {
		return cli.ErrFindings
	}
	return nil
}

func endpointsRemove() *cobra.Command {
	var e changeFlags
	var all, release bool
	cmd := &cobra.Command{
		Use:   "rm CLUSTER ID|--all|--release",
		Short: "Remove a registered endpoint, or all of a cluster",
		Long: `Rm removes an endpoint by its id, which is ADDRESS:PORT unless another one was given. With
--all it removes all endpoints of the cluster, and clients have none then. With --release the
server serves the cluster's endpoints in files or revisions again. If they contain none, clients
keep the endpoints that they have.

Exit codes: 0 removed; 1 not removed, with the reason; 2 wrong usage; 3 no server answers, or
it denies access or does not accept endpoints; 4 the endpoint is not registered.`,
		Example: "  chancery endpoints rm backend 10.0.0.1:8080\n  chancery endpoints rm backend --release",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 || (len(args) == 2) == (all || release) {
				return errors.New("rm needs CLUSTER and ID, or CLUSTER and --all or --release")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			id := ""
			if len(args) == 2 {
				id = args[1]
			}
			err := e.change(cmd, func(ctx context.Context, d *adminclient.Client) (*api.EndpointsResult, error) {
				return d.RemoveEndpoints(ctx, e.group, args[0], id, release)
			})
			if err == nil && release {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is not registered any more: its endpoints in files or revisions are served\n", text.Line(args[0]))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&all, "all", false, "remove all endpoints of the cluster")
	f.BoolVar(&release, "release", false, "the same, and serve the cluster's endpoints in files or revisions again")
	f.StringVarP(&e.group, "group", "g", "", "`GROUP` of resources that they were registered for; default: the default group")
	return e.command(cmd)
}

func endpointsList() *cobra.Command {
	var e changeFlags
	var o cli.Output
	cmd := &cobra.Command{
		Use:   "ls [CLUSTER]",
		Short: "List clusters with registered endpoints, or the endpoints of one",
		Long: `Ls lists the registered clusters, or the endpoints of one cluster. With -o name it prints the
names of clusters, or the ids of the endpoints.

Exit codes: 0 listed; 2 wrong usage; 3 no server answers, or it denies access or does not
accept endpoints; 4 the cluster is not registered.`,
		Example: "  chancery endpoints ls\n  chancery endpoints ls backend -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Check(); err != nil {
				return err
			}
			cluster := ""
			if len(args) == 1 {
				cluster = args[0]
			}
			list, err := cli.Ask(cmd, &e.AdminFlags, func(ctx context.Context, d *adminclient.Client) (*api.EndpointList, error) {
				return d.Endpoints(ctx, e.group, cluster)
			})
			if err != nil {
				return err
			}
			return listEndpoints(cmd, &o, list, cluster != "")
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&e.group, "group", "g", "", "only of this `GROUP` of resources")
	o.Register(cmd, "table", "json", "yaml", "jsonl", "name")
	return e.command(cmd)
}

// listEndpoints prints clusters, or the endpoints of one cluster.
func listEndpoints(cmd *cobra.Command, o *cli.Output, list *api.EndpointList, one bool) error {
	out := cmd.OutOrStdout()
	if one && o.Format == "name" {
		var all []api.Endpoint
		for _, c := range list.Items {
			all = append(all, c.Endpoints...)
		}
		return cli.PrintData(o, out, list, all, func(e api.Endpoint) string { return e.ID })
	}
	if !o.ForPeople() {
		return cli.PrintData(o, out, list, list.Items, func(c api.RegisteredCluster) string { return c.Cluster })
	}
	if !slices.ContainsFunc(list.Items, func(c api.RegisteredCluster) bool { return !one || len(c.Endpoints) > 0 }) {
		fmt.Fprintln(cmd.ErrOrStderr(), "No endpoints are registered.")
	}
	t := cli.Table{Headers: []string{"CLUSTER", "GROUP", "ENDPOINTS"}}
	if one {
		t.Headers = []string{"ID", "ADDRESS", "GROUP", "TTL", "HEALTH", "WEIGHT", "PRIORITY", "LOCALITY"}
	}
	for _, c := range list.Items {
		if !one {
			t.Row(c.Cluster, c.Group, strconv.Itoa(c.Total))
		}
		for _, e := range c.Endpoints {
			where := ""
			if l := e.Locality; l != nil {
				where = l.Region + "/" + l.Zone + "/" + l.SubZone
			}
			t.Row(e.ID, net.JoinHostPort(e.Address, strconv.Itoa(e.Port)), c.Group, e.TTL, e.Health, strconv.Itoa(max(e.Weight, 1)), strconv.Itoa(e.Priority), where)
		}
	}
	t.Print(out, o)
	return nil
}
