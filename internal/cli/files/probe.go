package files

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/cli"
)

// startupProbe returns the command that prints a startup probe for an Envoy in Kubernetes.
func startupProbe() *cobra.Command {
	var address, node string
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Print a startup probe of Envoy for Kubernetes",
		Long: `Probe prints a startupProbe for the container of an Envoy, in YAML. The probe passes
once the Envoy has accepted a complete configuration: the server answers it on its
--metrics-listen. It needs wget in the image.`,
		Example: "  chancery bootstrap probe\n  chancery bootstrap probe --url http://xds.example:9090 --node edge-1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := url.Parse(address)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.ContainsAny(u.Host, "'$();&!*+,=~") {
				return fmt.Errorf("--url: %q is not a URL such as http://xds.example:9090", address)
			}
			id, env := url.QueryEscape(node), ""
			if node == "" {
				id, env = "$POD_NAME", "env:\n- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}\n"
			}
			at := url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/ready", RawQuery: "node=" + id}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), `# Not as readinessProbe: a restart of the server would take working proxies out of service.
%sstartupProbe:
  exec: {command: [sh, -c, 'wget -qO- "%s"']}
  periodSeconds: 1
  failureThreshold: 60
`, env, &at)
			if err != nil {
				return cli.Fail(err, "")
			}
			return nil
		},
	}
	cli.PlainUsage(cmd)
	f := cmd.Flags()
	f.StringVar(&address, "url", "http://chancery.chancery:9090", "`URL` of the server's --metrics-listen")
	f.StringVar(&node, "node", "", "`ID` of the Envoy's node; default: the name of the pod")
	return cmd
}
