package files

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/envoy/bootstrap"
	"github.com/chancery-xds/chancery/internal/envoy/importer"
	"github.com/chancery-xds/chancery/internal/text"
)

// Bootstrap returns the command bootstrap.
func Bootstrap() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print the bootstrap configuration of a client",
		Long: `Bootstrap prints the file that tells a client where its server is, in the client's
own format. It does not contact the server.`,
		Example: `  chancery bootstrap envoy | envoy -c /dev/fd/0
  chancery bootstrap grpc >xds.json && GRPC_XDS_BOOTSTRAP=xds.json ./client`,
	}
	cmd.AddCommand(
		clientBootstrap("envoy", "Print Envoy's bootstrap", `Envoy prints a bootstrap for Envoy, in JSON. Envoy then gets listeners, clusters
and everything that they refer to from the server, with delta xDS over one stream (ADS).`, "  chancery bootstrap envoy --node edge-1 --cluster edge | envoy -c /dev/fd/0\n  chancery bootstrap envoy --from config/_bootstrap.yaml --server xds.example:18000", bootstrap.Envoy),
		clientBootstrap("grpc", "Print gRPC's bootstrap", `Grpc prints a bootstrap for gRPC clients and servers with xDS. They read it from
the file that GRPC_XDS_BOOTSTRAP names.`, "  chancery bootstrap grpc --node client-1 >xds.json\n  GRPC_XDS_BOOTSTRAP=xds.json ./client", bootstrap.GRPC),
		startupProbe(),
	)
	return cmd
}

// clientBootstrap returns the subcommand for one kind of client.
func clientBootstrap(name, short, long, example string, write func(bootstrap.Options) ([]byte, error)) *cobra.Command {
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
				o.Delta = false // REST supports only SotW
			}
			b, err := write(o)
			if err != nil {
				return err
			}
			if o.REST && !cmd.Flags().Changed("server") {
				return errors.New("--rest needs --server: give the address of its --rest-listen")
			}
			if from != "" {
				f := cmd.Flags()
				keep := importer.Keep{Node: !f.Changed("node"), Cluster: !f.Changed("cluster"), Admin: !f.Changed("admin")}
				b, err = complete(cmd, from, b, keep, sets)
				if err != nil {
					return err
				}
			}
			if _, err := cmd.OutOrStdout().Write(b); err != nil {
				return cli.Fail(err, "")
			}
			return nil
		},
	}
	host, _ := os.Hostname()
	cli.PlainUsage(cmd)
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.Node, "node", host, "`ID` of the client's node; default: the host name of this machine")
	f.Lookup("node").DefValue = "" // the help must not depend on the machine
	f.StringVar(&o.Cluster, "cluster", "", "`NAME` of the node's cluster, such as the service that the client belongs to")
	o.Server = "127.0.0.1:18000"
	f.Var(&only{to: &o.Server}, "server", "`HOST:PORT` or unix:///PATH of the server; for several servers, a DNS name that has all their addresses")
	trusted := "use TLS, with the system's CAs unless --tls-ca names another"
	if name == "envoy" {
		trusted = "use TLS; needs --tls-ca, because Envoy trusts no CA by default"
	}
	f.BoolVar(&secure, "tls", false, trusted)
	f.StringVar(&tls.CA, "tls-ca", "", "`FILE` with the CA of the server's certificate, on the client's machine; turns TLS on")
	f.StringVar(&tls.Cert, "tls-cert", "", "`FILE` with the client's certificate (mutual TLS)")
	f.StringVar(&tls.Key, "tls-key", "", "`FILE` with its private key")
	f.StringVar(&tls.ServerName, "tls-server-name", "", "`NAME` in the server's certificate, if it differs from --server")
	cli.ClientVariables(f)
	cli.TakeVariables(cmd, "node", "cluster", "server")
	if name == "envoy" {
		f.BoolVar(&o.Delta, "delta", true, "use delta (incremental) xDS; --delta=false is SotW (state of the world), which removes only listeners, clusters and scoped routes")
		f.BoolVar(&o.PerType, "per-type", false, "use one stream for each type instead of one for all (ADS); then no resource may contain ads: {}")
		f.BoolVar(&o.REST, "rest", false, "poll over REST-JSON instead of gRPC; --server is the address of the server's --rest-listen; no resource may contain ads: {}")
		f.StringVar(&o.Admin, "admin", bootstrap.DefaultAdmin, "`IP:PORT` or unix:///PATH of Envoy's admin interface")
		cli.MarkEnvoyAdmin(f)
		f.StringVar(&from, "from", "", "`FILE` with a bootstrap, such as chancery import writes: all of it is kept, except the server that resources come from; --node, --cluster and --admin replace its own values if they are given")
		f.Uint32Var(&o.RE2ProgramSize, "re2-program-size", 0, "maximum size of the RE2 program of a regular expression, as `N` instructions; 0 means Envoy's default of 100; check and serve know the value if the output is DIR/_bootstrap.yaml")
		cmd.MarkFlagsMutuallyExclusive("re2-program-size", "from")
		dirload.ProtoSetFlag(f, &sets)
	}
	return cmd
}

// complete inserts the generated bootstrap into the bootstrap of a file.
func complete(cmd *cobra.Command, from string, ours []byte, keep importer.Keep, sets []string) ([]byte, error) {
	types, err := dirload.ReadProtoSets(sets)
	if err != nil {
		return nil, err
	}
	f, err := importer.ReadFile(from, 64<<20)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	b, notes, problems := importer.Complete(f, ours, keep, importer.Options{Types: types})
	for _, p := range problems {
		fmt.Fprintln(cmd.ErrOrStderr(), p.Text())
	}
	if b == nil {
		return nil, cli.Fail(fmt.Errorf("--from: %s cannot be used: %s", from, text.Amount(len(problems), "error")), "")
	}
	for _, n := range notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "chancery: warning:", n)
	}
	return b, nil
}

// An only is the value of a flag that may be given only once. pflag would let a second value replace the
// first without an error.
type only struct {
	to    *string
	given bool
}

// Set implements [pflag.Value].
func (o *only) Set(value string) error {
	switch {
	case o.given:
		return fmt.Errorf("only one address is allowed, and %q was given before; for several servers, use a DNS name that has all their addresses", *o.to)
	case strings.Contains(value, ","):
		return fmt.Errorf("only one address is allowed, and %q is a list; for several servers, use a DNS name that has all their addresses", value)
	}
	*o.to, o.given = value, true
	return nil
}

// String implements [pflag.Value].
func (o *only) String() string {
	if o.to == nil { // pflag calls String of the zero value to find out whether a default is zero
		return ""
	}
	return *o.to
}

// Type implements [pflag.Value].
func (*only) Type() string { return "only" }
