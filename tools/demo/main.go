// Command demo shows Chancery with a real Envoy on this machine. "make demo" runs it at the
// root of the repository, after e2e/install.sh.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	once := flag.Bool("once", false, "end after the last step instead of waiting for Ctrl-C")
	compileAlways := flag.Bool("compile", false, "compile Chancery from this repository, even if a program is built or installed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "chancery-demo-")
	if err == nil {
		err = (&demo{dir: dir, begin: time.Now()}).run(ctx, *once, *compileAlways)
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

type demo struct {
	dir   string    // the directory of all files of the demo
	begin time.Time // start of the demo
	start time.Time // start of Envoy
	proxy string    // address at which Envoy accepts requests
}

func (d *demo) config(name string) string { return filepath.Join(d.dir, "config", name) }

func (d *demo) run(ctx context.Context, once, compileAlways bool) (err error) {
	envoys, _ := filepath.Glob(".cache/envoy/envoy-*")
	if len(envoys) == 0 {
		return errors.New("there is no Envoy in .cache/envoy: run e2e/install.sh, at the root of the repository")
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			for _, name := range []string{"chancery.log", "envoy.log"} {
				log, _ := os.ReadFile(filepath.Join(d.dir, name))
				fmt.Fprintf(os.Stderr, "\n%s:\n%s", name, log)
			}
		}
	}()
	ctx, end := context.WithCancel(ctx)
	programs := programs{dir: d.dir}
	defer func() {
		end()
		programs.wait()
	}()

	chancery, err := program(ctx, compileAlways)
	if err != nil {
		return err
	}
	one, two, err := upstreams()
	if err != nil {
		return err
	}
	say("Two small HTTP servers run, on the ports %d and %d.", one, two)

	xds, proxy, admin, err := freePorts()
	if err != nil {
		return err
	}
	d.proxy = fmt.Sprintf("http://127.0.0.1:%d/", proxy)
	if err := d.copy(proxy, one, two); err != nil {
		return err
	}
	say("The configuration is a copy of examples/quickstart, in %s:", d.config(""))
	files, err := os.ReadDir(d.config(""))
	if err != nil {
		return err
	}
	for _, f := range files {
		fmt.Println("    " + f.Name())
	}

	server := fmt.Sprintf("127.0.0.1:%d", xds)
	if err := programs.start(ctx, "chancery", nil, chancery, "serve", d.config(""), "--listen", server, "--admin-listen", "", "--log-format", "text", "--drain", "0s", "--state-dir", filepath.Join(d.dir, "state")); err != nil {
		return err
	}
	say("Chancery serves it:\n    chancery serve %s --listen %s", d.config(""), server)

	bootstrap, err := exec.CommandContext(ctx, chancery, "bootstrap", "envoy", "--node", "demo", "--server", server, "--admin", fmt.Sprintf("127.0.0.1:%d", admin)).Output()
	if err != nil {
		return fmt.Errorf("chancery bootstrap envoy: %w", err)
	}
	envoy := []string{envoys[len(envoys)-1], "-c", "/dev/fd/0", "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"}
	d.start = time.Now()
	if err := programs.start(ctx, "envoy", bytes.NewReader(bootstrap), envoy...); err != nil {
		return err
	}
	say("Envoy starts. Its bootstrap has only the address of Chancery:\n    chancery bootstrap envoy --node demo --server %s | envoy -c /dev/fd/0", server)

	if err := d.until(ctx, "one"); err != nil {
		return err
	}
	say("A request through Envoy was answered, %.1f s after Envoy was started, and %.1f s after the demo:", time.Since(d.start).Seconds(), time.Since(d.begin).Seconds())
	if err := d.show(ctx); err != nil {
		return err
	}

	if err := d.edit(ctx, chancery); err != nil {
		return err
	}
	if once {
		return nil
	}
	say("All programs keep running. Edit the files in %s and send a request again:\n    curl %s\nThe logs are in %s. Ctrl-C ends everything and removes the files.", d.config(""), d.proxy, d.dir)
	<-ctx.Done()
	fmt.Println()
	return nil
}

// programs are the programs that the demo has started. They end with the context.
type programs struct {
	dir     string // directory of their logs
	started []*exec.Cmd
}

func (p *programs) start(ctx context.Context, name string, stdin io.Reader, args ...string) error {
	log, err := os.Create(filepath.Join(p.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = stdin, log, log
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 10 * time.Second
	if err := c.Start(); err != nil {
		return err
	}
	p.started = append(p.started, c)
	return nil
}

func (p *programs) wait() {
	for _, c := range p.started {
		_ = c.Wait() // the error names the signal that ended the program
	}
}

// edit shows three edits of route.yaml: a change, a typo, and the first content again.
func (d *demo) edit(ctx context.Context, chancery string) error {
	route, err := os.ReadFile(d.config("route.yaml"))
	if err != nil {
		return err
	}
	moved := bytes.Replace(route, []byte("cluster: backend"), []byte("cluster: other"), 1)
	if err := d.write("route.yaml", moved); err != nil {
		return err
	}
	saved := time.Now()
	if err := d.until(ctx, "two"); err != nil {
		return err
	}
	say("In route.yaml, \"cluster: backend\" became \"cluster: other\". %d ms after the file was saved, Envoy asks the other server:", time.Since(saved).Milliseconds())
	if err := d.show(ctx); err != nil {
		return err
	}

	if err := d.write("route.yaml", bytes.Replace(moved, []byte("cluster: other"), []byte("clutser: backend"), 1)); err != nil {
		return err
	}
	if err := d.logged(ctx, "reload rejected"); err != nil {
		return err
	}
	say("Now route.yaml has a typo. Chancery rejects the file and keeps the previous configuration. chancery check shows the place:")
	out, err := exec.CommandContext(ctx, chancery, "check", d.config("")).Output()
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 1 {
		return fmt.Errorf("chancery check finds no mistake: %w: %s", err, out)
	}
	fmt.Print(indent(string(out)))
	say("Envoy got no change, and works as before:")
	if err := d.until(ctx, "two"); err != nil {
		return err
	}
	if err := d.show(ctx); err != nil {
		return err
	}

	if err := d.write("route.yaml", route); err != nil {
		return err
	}
	if err := d.until(ctx, "one"); err != nil {
		return err
	}
	say("The file has its first content again, and the first server answers:")
	if err := d.show(ctx); err != nil {
		return err
	}
	return nil
}

// copy copies the quickstart, with free ports and a second cluster.
func (d *demo) copy(proxy, one, two int) error {
	const from = "examples/quickstart"
	if err := os.Mkdir(d.config(""), 0o755); err != nil {
		return err
	}
	edit := func(name, to string, replace ...string) error {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		for i := 0; i < len(replace); i += 2 {
			if !bytes.Contains(b, []byte(replace[i])) {
				return fmt.Errorf("%s/%s has no %q", from, name, replace[i])
			}
			b = bytes.ReplaceAll(b, []byte(replace[i]), []byte(replace[i+1]))
		}
		return d.write(to, b)
	}
	return errors.Join(
		edit("listener.yaml", "listener.yaml", "10000", fmt.Sprint(proxy)),
		edit("route.yaml", "route.yaml", "cluster: backend", "cluster: backend"),
		edit("cluster.yaml", "cluster.yaml"),
		edit("cluster.yaml", "other-cluster.yaml", "name: backend", "name: other"),
		edit("endpoints.yaml", "endpoints.yaml", "8080", fmt.Sprint(one)),
		edit("endpoints.yaml", "other-endpoints.yaml", "8080", fmt.Sprint(two), "cluster_name: backend", "cluster_name: other"),
	)
}

// write replaces a file by renaming a new one, as editors do.
func (d *demo) write(name string, content []byte) error {
	next := filepath.Join(d.dir, "next")
	if err := os.WriteFile(next, content, 0o644); err != nil {
		return err
	}
	return os.Rename(next, d.config(name))
}

// get sends a request through Envoy.
func (d *demo) get(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.proxy, nil)
	if err != nil {
		return "", err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return strings.TrimSpace(string(b)), err
}

func (d *demo) show(ctx context.Context) error {
	answer, err := d.get(ctx)
	if err == nil {
		fmt.Printf("    $ curl %s\n    %s\n", d.proxy, answer)
	}
	return err
}

// until waits until an upstream answers requests.
func (d *demo) until(ctx context.Context, upstream string) error {
	return eventually(ctx, "an answer of server "+upstream, func() bool {
		answer, err := d.get(ctx)
		return err == nil && answer == greeting(upstream)
	})
}

// logged waits for a text in Chancery's log.
func (d *demo) logged(ctx context.Context, text string) error {
	return eventually(ctx, fmt.Sprintf("%q in Chancery's log", text), func() bool {
		b, _ := os.ReadFile(filepath.Join(d.dir, "chancery.log"))
		return bytes.Contains(b, []byte(text))
	})
}

func eventually(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("timeout after 30 s"))
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func greeting(name string) string { return "hello from server " + name }

// upstreams starts the servers behind Envoy, and returns their ports.
func upstreams() (one, two int, err error) {
	serve := func(name string) (int, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		s := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, greeting(name))
		})}
		go func() { _ = s.Serve(l) }() // until the program ends
		return l.Addr().(*net.TCPAddr).Port, nil
	}
	one, err = serve("one")
	if err != nil {
		return 0, 0, err
	}
	two, err = serve("two")
	return one, two, err
}

// freePorts returns unused ports. Another program may take them before the demo does.
func freePorts() (xds, proxy, admin int, err error) {
	for _, p := range []*int{&xds, &proxy, &admin} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, 0, 0, err
		}
		defer l.Close()
		*p = l.Addr().(*net.TCPAddr).Port
	}
	return xds, proxy, admin, nil
}

var step int

// say prints a paragraph.
func say(format string, args ...any) {
	step++
	fmt.Printf("\n%d. %s\n", step, fmt.Sprintf(format, args...))
}

func indent(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n    ") + "\n"
}
