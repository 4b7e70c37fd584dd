package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/bootstrap"
	"github.com/chancery-xds/chancery/internal/importer"
)

func bootstrapCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print the configuration that a client starts with",
		Long: `Bootstrap prints what a client needs to find the server, in the client's own
format. It asks no server and checks nothing but the options.`,
		Example: `  chancery bootstrap envoy | envoy -c /dev/fd/0
  chancery bootstrap grpc >xds.json && GRPC_XDS_BOOTSTRAP=xds.json ./client`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		client("envoy", "Print Envoy's bootstrap", `Envoy prints Envoy's bootstrap in JSON: listeners and clusters come from the
server, and all that they refer to.`, "  chancery bootstrap envoy --node edge-1 --cluster edge | envoy -c /dev/fd/0\n  chancery bootstrap envoy --from config/_bootstrap.yaml --server xds.example:18000", bootstrap.Envoy),
		client("grpc", "Print gRPC's bootstrap", `Grpc prints the bootstrap that gRPC's xds resolver reads from the file named by
GRPC_XDS_BOOTSTRAP.`, "  chancery bootstrap grpc --node client-1 >xds.json\n  GRPC_XDS_BOOTSTRAP=xds.json ./client", bootstrap.GRPC),
	)
	return cmd
}

// client is the command for one kind of client.
func client(name, short, long, example string, write func(bootstrap.Options) ([]byte, error)) *cobra.Command {
	var o bootstrap.Options
	var tls bootstrap.TLS
	var secure bool
	var from string
	var sets []string
	cmd := &cobra.Command{
		Use:     name,
		Short:   short,
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if secure || tls != (bootstrap.TLS{}) {
				o.TLS = &tls
			}
			if o.REST && !cmd.Flags().Changed("delta") {
				o.Delta = false // there is no other
			}
			b, err := write(o)
			if err != nil {
				return err
			}
			if o.REST && !cmd.Flags().Changed("server") {
				return errors.New("--rest needs --server: where --rest-listen of the server is")
			}
			if from != "" {
				f := cmd.Flags()
				keep := importer.Keep{Node: !f.Changed("node"), Cluster: !f.Changed("cluster"), Admin: !f.Changed("admin")}
				if b, err = complete(cmd, from, b, keep, sets); err != nil {
					return err
				}
			}
			if _, err := cmd.OutOrStdout().Write(b); err != nil {
				return failure{err, ""}
			}
			return nil
		},
	}
	host, _ := os.Hostname()
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.Node, "node", host, "`ID` of the client; by default the name of this machine")
	f.Lookup("node").DefValue = "" // the same help everywhere
	f.StringVar(&o.Cluster, "cluster", "", "`NAME` of the service that the client belongs to")
	o.Server = "127.0.0.1:18000"
	f.Var(&only{to: &o.Server}, "server", "`HOST:PORT` or unix:///PATH where the server is; several are one name with an address of each in DNS")
	trusted := "TLS, with the system's CAs unless --tls-ca says others"
	if name == "envoy" {
		trusted = "TLS; needs --tls-ca, for Envoy knows no CAs by itself"
	}
	f.BoolVar(&secure, "tls", false, trusted)
	f.StringVar(&tls.CA, "tls-ca", "", "`FILE` with the CA of the server's certificate, on the client's machine: TLS")
	f.StringVar(&tls.Cert, "tls-cert", "", "`FILE` with the client's certificate (mutual TLS)")
	f.StringVar(&tls.Key, "tls-key", "", "`FILE` with its private key")
	f.StringVar(&tls.ServerName, "tls-server-name", "", "`NAME` in the server's certificate, if it is not that of --server")
	if name == "envoy" {
		f.BoolVar(&o.Delta, "delta", true, "incremental xDS; --delta=false is state of the world, which cannot tell Envoy of all that is gone")
		f.BoolVar(&o.PerType, "per-type", false, "a stream for each type instead of one for all (ADS); then no resource may say ads: {}")
		f.BoolVar(&o.REST, "rest", false, "polls over REST-JSON instead of gRPC; --server is where --rest-listen of the server is; no resource may say ads: {}")
		f.StringVar(&o.Admin, "admin", bootstrap.DefaultAdmin, "`IP:PORT` or unix:///PATH of Envoy's admin interface")
		f.StringVar(&from, "from", "", "`FILE` with a bootstrap, such as that of chancery import: what is in it stays, but for where resources come from; node, cluster and admin interface are its own unless their flags are given")
		setFlag(f, &sets)
	}
	return cmd
}

// complete puts our bootstrap into that of a file.
func complete(cmd *cobra.Command, from string, ours []byte, keep importer.Keep, sets []string) ([]byte, error) {
	types, err := readSets(sets)
	if err != nil {
		return nil, err
	}
	f, err := importer.ReadFile(from, 64<<20)
	if err != nil {
		return nil, failure{err, ""}
	}
	b, notes, problems := importer.Complete(f, ours, keep, importer.Options{Types: types})
	for _, p := range problems {
		fmt.Fprintln(cmd.ErrOrStderr(), p.Text())
	}
	if b == nil {
		return nil, failure{fmt.Errorf("--from: %s cannot be used: %s", from, count(len(problems), "error")), ""}
	}
	for _, n := range notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "chancery: warning:", n)
	}
	return b, nil
}

// An only is the value of a flag that is given once: a client has one server, and who
// names two would be given the last.
type only struct {
	to    *string
	given bool
}

// Set implements [pflag.Value].
func (o *only) Set(value string) error {
	switch {
	case o.given:
		return fmt.Errorf("one address, and %q is there already; several servers are one name with an address of each in DNS", *o.to)
	case strings.Contains(value, ","):
		return fmt.Errorf("one address, and %q is a list; several servers are one name with an address of each in DNS", value)
	}
	*o.to, o.given = value, true
	return nil
}

// String implements [pflag.Value].
func (o *only) String() string {
	if o.to == nil { // how pflag finds out what is zero
		return ""
	}
	return *o.to
}

// Type implements [pflag.Value].
func (*only) Type() string { return "only" }
