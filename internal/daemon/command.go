package daemon

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/cli"
)

// Command returns the command serve.
func Command() *cobra.Command {
	var c Config
	cmd := &cobra.Command{
		Use:   "serve DIR|xds://UPSTREAM|[DIR] --store URL",
		Short: "Serve the configuration in a directory or a store, or relay another xDS server's",
		Long: `Serve loads all files of resources in DIR and its subdirectories, and serves the
resources to xDS clients over gRPC: SotW and delta, aggregated (ADS) and per type;
with --rest-listen over REST-JSON, too.

A file contains resources in the format of Envoy's own configuration files:

  - one resource, with "@type";
  - a DiscoveryResponse: a list under "resources:", of one or more types;
  - the protocol's Resource, which can set a name, aliases, a TTL or a version.

Files are YAML (.yaml, .yml; one or more documents), JSON (.json), or protobuf in
text (.txtpb, .textproto, .pb_text) or binary (.pb), which contain a
DiscoveryResponse. Serve skips files and directories whose names begin with "." or
"_". Unknown fields are errors.

A directory in DIR with a file group.yaml is a group, with all below it: the file
says which nodes get it (docs/groups.md). DIR itself is the group of all other nodes.

When a file changes, serve loads all files again. If one of them has an error, serve
logs the error with its location and keeps the previous configuration. After a
restart it does the same, with the last good configuration, which it stores in
--state-dir. If nothing is stored there, an error at the start ends the program.
While a directory has never had a resource, clients get no response: an empty one would
remove all their resources.
A group whose group.yaml has "on_error: alone" is loaded by itself: if it has errors, only
this group keeps its previous configuration.

A load that removes the last file, or leaves less than half of the resources that a
type (of 20 or more) had in the last 10 minutes, is rejected, because an unmounted
volume looks the same. "chancery reload --allow-mass-delete" allows it. A load that
removes more than a tenth waits for --confirm-removals.

Serve reads TLS files again when they change. Unix sockets never use TLS: the mode of
the file, 0660, decides who may connect. Secrets, in resources of any type, are sent
to other machines only over TLS and only to clients with certificates (--client-ca),
unless --insecure-secrets is given.

With --client-ca a client may only be the node that its certificate names: by a DNS
name, a URI, or the last segment of its SPIFFE ID. Rules (--access FILE) can say
otherwise; --access any allows any node (docs/identity.md).

With xds://HOST:PORT in place of DIR, serve is a relay of another xDS server, the upstream,
by any vendor. It subscribes once to each resource that its clients want, stores the last
good configuration in --state-dir, and serves that while the upstream is away
(docs/relay.md). The URL can have flags of the fetch command after a "?":
xds://HOST:PORT?delta&node=ID&tls-ca=FILE

With --endpoints, programs can register endpoints of clusters through the admin API while
serve runs, with or without a lease ("chancery endpoints", docs/endpoints.md).

With --store URL and no DIR, serve gets its configuration from a store of revisions.
"chancery apply" commits a revision, and serve serves it as a whole. Any number of servers
can serve one store. With --store-write, "chancery apply" can also commit through the admin
API of the server. With --store URL and DIR, the servers elect one of them: it commits the
content of DIR when that changes. While the store is away, the servers continue with the
last good configuration, which is in --state-dir also after a restart (docs/revisions.md).

An environment variable can replace each flag: CHANCERY_LISTEN for --listen,
CHANCERY_MAX_FILE for --max-file. If both are given, the flag is used. A SIZE is a
number of bytes, or a number with a unit: 67108864, 64MiB, 64MB.

Signals: SIGHUP reloads at once, also during shutdown. SIGTERM and SIGINT shut the
server down: it is not ready from then on, and after --drain-delay it sends its
clients elsewhere, closes their streams one by one within --drain, and exits. A
second SIGTERM or SIGINT makes it exit at once.

Exit codes: 0 ended by a signal; 1 the files cannot be loaded, or an address
cannot be listened on; 2 wrong usage.`,
		Example: `  chancery serve ./config
  chancery serve /etc/chancery --listen 0.0.0.0:18000 --tls-cert tls.crt --tls-key tls.key --client-ca ca.crt
  chancery serve /etc/chancery --listen unix:///run/chancery/xds.sock --metrics-listen 127.0.0.1:9090
  chancery serve 'xds://upstream:18000?delta&node=relay-1' --listen 0.0.0.0:18000
  chancery serve --store etcd://e1:2379,e2:2379,e3:2379/prod --store-ca ca.crt`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("serve needs one directory or xds:// URL, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			c.admin.chosen = given("admin-listen") || c.admin.authenticates()
			c.state.chosen = given("state-dir")
			if err := c.check(given); err != nil {
				return err
			}
			if err := c.checkSource(given, strings.Join(args, "")); err != nil {
				return err
			}
			if err := c.endpoints.check(c.upstream != nil, c.dir, c.admin.served()); err != nil {
				return err
			}
			log, err := c.logging.Open(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer c.logging.Close()
			return serve(&c, slog.New(limitFlagHandler{log.Handler()}), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	cli.TitledFlags(f, "Listening and TLS", func(f *pflag.FlagSet) { c.listening.flags(f, &c.rest.address, &c.insecureSecrets, &c.health.address) })
	cli.TitledFlags(f, "Identity", c.identity.flags)
	cli.TitledFlags(f, "Admin API", func(f *pflag.FlagSet) { c.admin.flags(f); c.endpoints.flags(f) })
	cli.TitledFlags(f, "Store", c.store.flags)
	cli.TitledFlags(f, "Files", c.files.flags)
	cli.TitledFlags(f, "Loading and removing", func(f *pflag.FlagSet) { c.state.flags(f); c.files.loading(f) })
	cli.TitledFlags(f, "Clients", func(f *pflag.FlagSet) { c.clients.flags(f); c.listening.ageFlags(f); c.shed.flags(f); c.draining(f) })
	c.limits.flags(f)
	cli.TitledFlags(f, "Log", c.logging.Register)
	cli.TitledUsage(cmd, "\"chancery help limits\" lists the flags that limit what clients may do.")
	cli.TakeVariables(cmd)
	return cmd
}
