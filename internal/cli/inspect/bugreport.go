package inspect

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/listen"
)

// bugreportFlags are the flags of chancery bugreport.
type bugreportFlags struct {
	cli.AdminFlags
	out, metrics string
	node         string
}

// Bugreport returns the command bugreport.
func Bugreport() *cobra.Command {
	var r bugreportFlags
	cmd := &cobra.Command{
		Use:   "bugreport",
		Short: "Write an archive with the state of a running server, for a bug report",
		Long: `Bugreport writes a .tar.gz for somebody who analyses a problem later: the server's status, its
clients with their states and refusals, the groups, the list of resources without their
content, the last events, and with --metrics-listen the metrics and the goroutines. With --node
it also contains that client's resources, and why the client lacks some.

The archive contains no secrets and no content of resources. It contains the names of nodes,
resources and files, addresses, and the texts of refusals: check whether you may share these.

Exit codes: 0 written; 1 a part is missing, or the archive cannot be written; 2 wrong usage;
3 no server answers, or it denies access.`,
		Example: `  chancery bugreport
  chancery bugreport --metrics-listen 127.0.0.1:9090 --out report.tar.gz
  chancery bugreport --node edge-7d9f-x2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&r.out, "out", "", "`FILE` to write; - is standard output; empty: chancery-bugreport-TIME.tar.gz")
	f.StringVar(&r.node, "node", "", "`ID` of a node whose details the archive contains")
	_ = cmd.RegisterFlagCompletionFunc("node", cli.CompleteFlag(&r.AdminFlags, cli.CompleteNodes))
	f.StringVar(&r.metrics, "metrics-listen", "", "`HOST:PORT` or unix:///PATH of the server's --metrics-listen")
	r.AdminFlags.Register(f)
	cli.ServerUsage(cmd)
	return cmd
}

// parts returns the files of an archive.
func (r *bugreportFlags) parts(d *adminclient.Client) []part {
	raw := func(path string) func(context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) { return d.Raw(ctx, path) }
	}
	all := []part{
		{"status.json", raw("/api/v1/status")}, // the first request, so that the command fails early without a server
		{"clients.json", raw("/api/v1/clients?all=1&left=1")},
		{"nacks.json", raw("/api/v1/refusals")},
		{"groups.json", raw("/api/v1/groups")},
		{"resources.json", raw("/api/v1/resources?limit=10000")},
		{"version.json", raw("/version")},
		{"events.jsonl", func(ctx context.Context) ([]byte, error) { return pastEvents(ctx, d) }},
	}
	if r.node != "" {
		all = append(all,
			part{"node/client.json", answerOf(func(ctx context.Context) (any, error) { return d.Client(ctx, r.node) })},
			part{"node/resources.json", answerOf(func(ctx context.Context) (any, error) { return d.ClientResources(ctx, r.node, "", "", 0) })},
			part{"node/explain.json", answerOf(func(ctx context.Context) (any, error) { return d.Explain(ctx, r.node, "", "") })})
	}
	if r.metrics != "" {
		for name, path := range map[string]string{"metrics.txt": "/metrics", "readyz.txt": "/readyz?verbose", "goroutines.txt": "/debug/pprof/goroutine?debug=1"} {
			all = append(all, part{name, func(ctx context.Context) ([]byte, error) { return fromMonitor(ctx, r.metrics, path) }})
		}
	}
	return all
}

// A part is a file of the archive.
type part struct {
	name string
	get  func(context.Context) ([]byte, error)
}

func answerOf(question func(context.Context) (any, error)) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		answer, err := question(ctx)
		if err != nil {
			return nil, err
		}
		return json.MarshalIndent(answer, "", "  ")
	}
}

func pastEvents(ctx context.Context, d *adminclient.Client) ([]byte, error) {
	var b bytes.Buffer
	for e, err := range d.Events(ctx, adminclient.EventFilter{Stop: true}) {
		if err != nil {
			return b.Bytes(), err
		}
		line, _ := json.Marshal(e) // cannot fail: the event came from JSON
		b.Write(append(line, '\n'))
	}
	return b.Bytes(), nil
}

// fromMonitor requests a path of --metrics-listen.
func fromMonitor(ctx context.Context, address, path string) ([]byte, error) {
	at, err := listen.Parse(address)
	if err != nil {
		return nil, err
	}
	to := at.String()
	if at.Network == "unix" {
		to = at.Path
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, at.Network, to)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		if e, is := errors.AsType[*url.Error](err); is { // the URL in the error does not name the server
			err = e.Err
		}
		return nil, fmt.Errorf("--metrics-listen %s: %w", at, err)
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, 64<<20))
}

func (r *bugreportFlags) run(cmd *cobra.Command) error {
	if r.metrics != "" {
		if _, err := listen.Parse(r.metrics); err != nil {
			return fmt.Errorf("--metrics-listen: %w", err)
		}
	}
	d, err := r.Dial()
	if err != nil {
		return err
	}
	now := time.Now()
	top := "chancery-bugreport-" + now.Format("20060102-150405")
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	archive := tar.NewWriter(z)
	add := func(name string, content []byte) {
		// Writes to memory fail only because of a wrong call, and Close reports that.
		_ = archive.WriteHeader(&tar.Header{Name: top + "/" + name, Mode: 0o644, Size: int64(len(content)), ModTime: now})
		_, _ = archive.Write(content)
	}
	var wrong []byte
	for i, p := range r.parts(d) {
		ctx, cancel := context.WithTimeoutCause(cli.Context(cmd), cli.AskTimeout, fmt.Errorf("no answer for %v", cli.AskTimeout))
		content, err := p.get(ctx)
		cancel()
		if _, is := errors.AsType[*adminclient.Unreachable](err); is && i == 0 {
			return cli.AdminError(err)
		}
		if err != nil {
			line := p.name + ": " + cli.PrintableError(err).Error()
			fmt.Fprintln(cmd.ErrOrStderr(), "chancery: warning: the archive lacks", line)
			wrong = append(wrong, line+"\n"...)
		}
		if err == nil || len(content) > 0 {
			add(p.name, content)
		}
	}
	add("command.txt", []byte(cli.VersionLine()+"\n"))
	if wrong != nil {
		add("missing.txt", wrong)
	}
	if err := errors.Join(archive.Close(), z.Close()); err != nil {
		return cli.Fail(err, "")
	}
	if err := r.write(cmd, top, b.Bytes()); err != nil {
		return cli.Fail(err, "")
	}
	if wrong != nil {
		return cli.ErrNo
	}
	return nil
}

func (r *bugreportFlags) write(cmd *cobra.Command, top string, archive []byte) error {
	if r.out == "-" {
		_, err := cmd.OutOrStdout().Write(archive)
		return err
	}
	path := r.out
	if path == "" {
		path = top + ".tar.gz"
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // the names of nodes are confidential
	if err != nil {
		return err
	}
	if _, err := f.Write(archive); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s; no secrets, but the names of nodes, resources and files\n", path, cli.BytesText(len(archive)))
	return nil
}
