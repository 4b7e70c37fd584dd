package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/listen"
)

// MaxAnswer is the maximum number of bytes in a server's answer about its health.
const MaxAnswer = 64 << 10

// Health returns the command health.
func Health() *cobra.Command {
	var address string
	var alive bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a running server whether it is ready",
		Long: `Health asks a running "chancery serve" whether it is ready (/readyz), or with --alive
whether its process answers (/healthz). Give it the same --metrics-listen as the
server. Use it as the probe in images that have no other program: HEALTHCHECK in a
Dockerfile, or exec probes of Kubernetes.

Exit codes: 0 ready (or alive); 1 not ready, or no answer; 2 wrong usage.`,
		Example: `  chancery health
  chancery health --metrics-listen 127.0.0.1:9090 --alive`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := listen.Parse(address)
			switch {
			case err != nil:
				return fmt.Errorf("--metrics-listen: %w", err)
			case at.Network == "tcp" && at.Port == 0:
				return errors.New("--metrics-listen: port 0 means any free port: give the port that the server has logged")
			case timeout <= 0:
				return errors.New("--timeout: must be more than 0")
			}
			path := "/readyz"
			if alive {
				path = "/healthz"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			answer, err := askHealth(ctx, at, path)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), answer)
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&address, "metrics-listen", "127.0.0.1:9090", "`HOST:PORT` or unix:///PATH of the server's --metrics-listen; 0.0.0.0 means this machine")
	f.Lookup("metrics-listen").DefValue = "127.0.0.1:9090"
	f.BoolVar(&alive, "alive", false, "ask whether the process answers, not whether it is ready")
	f.DurationVar(&timeout, "timeout", 2*time.Second, "maximum `time` to wait for the answer")
	cli.PlainUsage(cmd)
	cli.TakeVariables(cmd)
	return cmd
}

// askHealth returns the answer of a server on a path. A status other than 200 is a failure.
func askHealth(ctx context.Context, at listen.Address, path string) (string, error) {
	to := at.String()
	switch {
	case at.Network == "unix":
		to = at.Path
	case at.Any(): // an address to listen on cannot be dialed
		host := "127.0.0.1" // a minimal image may lack /etc/hosts, which defines localhost
		if strings.Contains(at.Host, ":") {
			host = "::1"
		}
		to = net.JoinHostPort(host, strconv.Itoa(int(at.Port)))
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // the client sends a single request; it uses no proxy
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, at.Network, to)
		},
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(r)
	switch {
	case err != nil && ctx.Err() != nil:
		return "", cli.Fail(fmt.Errorf("the server at %s did not answer in time (--timeout)", at), "")
	case err != nil:
		return "", cli.Fail(fmt.Errorf("no server answers at %s: %w", at, errors.Unwrap(err)), "give the same --metrics-listen as for chancery serve, which has none by default")
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer))
	if err != nil {
		return "", cli.Fail(fmt.Errorf("the answer of %s was cut off: %w", at, err), "")
	}
	text := strings.TrimSpace(string(b))
	if resp.StatusCode != http.StatusOK {
		return "", cli.Fail(fmt.Errorf("%s: %s: %s", at, resp.Status, strings.ReplaceAll(text, "\n", "; ")), "")
	}
	return text, nil
}
