package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
)

// pagesWithCommands are the pages with commands that users type. A block that is indented by four
// spaces or fenced as "console" has commands if it begins with one of programs or with "$ ". The
// lines after a "$ " line are the output of the command, where "…" is any text.
var (
	pagesWithCommands = []string{"README.md", "CONTRIBUTING.md", "examples/README.md", "docs/*.md"}
	programs          = regexp.MustCompile(`^(\./\S+|[A-Z]+=\S+|\$\w+|chancery|envoy|curl|make|go|cd|docker|kubectl|protoc|buf|export|git|bin/\S+|e2e/\S+)( |$)`)
)

// notHere lists the commands that the test does not run, with the reason.
var notHere = []struct {
	what *regexp.Regexp
	why  string
}{
	{regexp.MustCompile(`^make( |$)`), "a stage of CI, or it takes minutes; that its targets exist is checked"},
	{regexp.MustCompile(`^(docker|kubectl|protoc|buf|systemctl|apt|dnf) `), "another program, which need not be installed"},
	{regexp.MustCompile(`^go (test|build|run) |^cd e2e && go test |^cd examples/(admin|embedded|directory) && go run `), "it compiles, as CI does elsewhere"},
	{regexp.MustCompile(`^(B="|D="|E="|\$B |\./report\.py |bin/(bench|files|pages|refusals)\b|e2e/|cd bench )`), "a benchmark"},
	{regexp.MustCompile(`^(SOAK|GO\w+|RUNS|E2E_\w+|MUTANT\w*)=`), "a stage of CI with other settings"},
	{regexp.MustCompile(`chancery-k8s( |$)`), "a module of its own, which is tested by itself"},
	{regexp.MustCompile(`\./client$|^helm | --(tls-cert tls\.crt|store-ca) |^chancery check (a\.yaml|.* --envoy /usr/bin/envoy)`), "the files, or the program, are yours"},
}

// The command that must run before the commands of a page.
var before = map[string]string{"docs/troubleshooting.md": "chancery serve examples/quickstart", "docs/commands.md": "chancery serve examples/quickstart",
	"docs/commands-reference.md": "chancery serve examples/quickstart"}

// A command of a page, with its output.
type command struct {
	line, prelude string
	prints        []string
	shown         bool // the page shows the output prints
}

func TestCommandsOfDocs(t *testing.T) {
	var pages []string
	for _, pattern := range pagesWithCommands {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		pages = append(pages, found...)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, path := range pages {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel("../..", path)
		var run []command
		for _, c := range commandsOf(string(page)) {
			if m := regexp.MustCompile(`^make ([a-z-]+)`).FindStringSubmatch(c.line); m != nil && !regexp.MustCompile(`(?m)^`+m[1]+`:|^STAGES.*\b`+m[1]+`\b`).Match(makefile) {
				t.Errorf("%s: there is no target %s", name, m[1])
			}
			if !slices.ContainsFunc(notHere, func(n struct {
				what *regexp.Regexp
				why  string
			}) bool {
				return n.what.MatchString(c.line)
			}) {
				run = append(run, c)
			}
		}
		if len(run) == 0 {
			continue
		}
		ran += len(run)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTypist(t)
			if name == "docs/import.md" { // a reader who begins with this page has no directory yet
				_ = os.RemoveAll(filepath.Join(p.root, "config"))
			}
			if line := before[name]; line != "" {
				p.types(command{line: line})
			}
			for _, c := range run {
				p.types(c)
			}
		})
	}
	if ran < 25 {
		t.Errorf("%d commands found", ran)
	}
}

// commandsOf returns the commands of a page, in order.
func commandsOf(page string) (all []command) {
	fence, inBlock, prelude := "", false, ""
	last := ""
	for line := range strings.SplitSeq(page, "\n") {
		text, indented := strings.CutPrefix(line, "    ")
		switch {
		case strings.HasPrefix(line, "```"):
			if fence == "" {
				fence = line
			} else {
				fence = ""
			}
			prelude = ""
		case fence == "```console":
			typed, ok := strings.CutPrefix(line, "$ ")
			switch {
			case ok && strings.HasPrefix(typed, "export "):
				prelude += typed + "\n"
			case ok:
				all = append(all, command{line: typed, prelude: prelude})
			case len(all) > 0:
				c := &all[len(all)-1]
				c.prints, c.shown = append(c.prints, line), true
			}
		case fence != "":
		case indented && !strings.HasPrefix(text, " "):
			if last == "" || strings.HasPrefix(last, "#") { // a block begins
				inBlock = programs.MatchString(text)
			}
			if inBlock {
				text, _, _ = strings.Cut(text, "   ") // and a comment or a description
				all = append(all, command{line: strings.TrimSpace(text)})
			}
		case line != "":
			inBlock = false
		}
		if line != "" || !inBlock {
			last = line
		}
	}
	return all
}

// A typist types the commands of a page, in a copy of the examples, with free ports.
type typist struct {
	*testing.T
	root, envoy string
	ports       map[string]string
	env         []string
	server      *exec.Cmd // the server that was started last
}

// staticEnvoy is the bootstrap of a user without Chancery.
const staticEnvoy = `
node: {id: edge-1, cluster: edge}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}
static_resources:
  listeners:
  - name: in
    address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.direct_response
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.direct_response.v3.Config
          response: {inline_string: hello}
`

func newTypist(t *testing.T) *typist {
	t.Helper()
	p := &typist{T: t, root: t.TempDir(), ports: map[string]string{}}
	for _, port := range []string{"18000", "18001", "18080", "9090", "10000", "9901", "50051"} {
		p.ports[port] = freePort(t)
	}
	from := os.DirFS("../../examples")
	for _, to := range []string{"examples", "etc"} {
		if err := os.CopyFS(filepath.Join(p.root, to), from); err != nil {
			t.Fatal(err)
		}
	}
	for was, is := range map[string]string{"etc/quickstart": "etc/chancery", "etc/grpc": "config"} {
		if err := os.Rename(filepath.Join(p.root, was), filepath.Join(p.root, is)); err != nil {
			t.Fatal(err)
		}
	}
	// The test compiles these programs in the repository.
	here, err := filepath.Abs("../../examples/grpc/greeter")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"examples", "etc/chancery", "config"} {
		files, _ := filepath.Glob(filepath.Join(p.root, dir, "*.yaml"))
		more, _ := filepath.Glob(filepath.Join(p.root, dir, "*/*.yaml"))
		for _, file := range append(files, more...) {
			b, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, []byte(p.moved(string(b))), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	set, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{{
		Name: new("acme/filter.proto"), Package: new("acme"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: new("Filter")}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ca := tlstest.NewAuthority(t, "ca")
	pair := ca.Issue("server", "localhost", "127.0.0.1")
	write(t, p.root, "acme.binpb", string(set), "etc/ca.crt", string(ca.PEM), "ca.crt", string(ca.PEM), "tls.crt", string(pair.Cert), "tls.key", string(pair.Key), "var/lib/x", "",
		"roles.yaml", "bindings:\n- {role: commit, subjects: [{uid: 0}]}\n- {role: view, subjects: [{loopback: true}]}\n",
		"access.yaml", "rules:\n- {name: all, identity: {kind: mtls}, node: {id: \"**\"}}\n",
		"etc/envoy/_bootstrap.yaml", "node: {id: edge-1, cluster: edge}\n", "etc/envoy/envoy.yaml", p.moved(staticEnvoy))
	envoys, _ := filepath.Glob("../../.cache/envoy/envoy-*")
	if len(envoys) > 0 {
		p.envoy, _ = filepath.Abs(envoys[len(envoys)-1])
	} else if os.Getenv("CI") != "" {
		t.Error("there is no Envoy: make .cache/envoy")
	}
	// Envoy gets free ports. It cannot reach a server of another machine.
	write(t, p.root, "bin/envoy", `#!/bin/sh
test "$1" = -c || exit 2
f="$(mktemp "$TMPDIR/XXXXXX.json")"; case "$2" in *.yaml) mv "$f" "${f%.json}.yaml"; f="${f%.json}.yaml";; esac
sed 's/\b18000\b/`+p.ports["18000"]+`/; s/\b9901\b/`+p.ports["9901"]+`/' "$2" >"$f"
mode=; grep -q xds.example "$f" && mode='--mode validate'
exec `+p.envoy+` $mode -c "$f" --concurrency 1 --disable-hot-restart --log-level error
`)
	if err := os.Chmod(filepath.Join(p.root, "bin/envoy"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, filepath.Join(p.root, "bin/chancery")); err != nil {
		t.Fatal(err)
	}
	p.env = append(os.Environ(), "PATH="+filepath.Join(p.root, "bin")+":"+os.Getenv("PATH"), "TMPDIR="+p.root, "GREETER="+here,
		"STATE_DIRECTORY="+filepath.Join(p.root, "state"), "CHANCERY_LISTEN=127.0.0.1:"+p.ports["18000"], "CHANCERY_SERVER=127.0.0.1:"+p.ports["18000"],
		"CHANCERY_REST_LISTEN=127.0.0.1:"+p.ports["18080"], "CHANCERY_ADMIN_LISTEN=127.0.0.1:"+p.ports["18001"], "CHANCERY_ADMIN=http://127.0.0.1:"+p.ports["18001"], "CHANCERY_METRICS_LISTEN=127.0.0.1:"+p.ports["9090"])
	return p
}

var absolute = regexp.MustCompile(`(^|\s)/(etc|var)/`)

// moved returns a text with the ports and directories of this typist.
func (p *typist) moved(text string) string {
	for was, is := range p.ports {
		text = regexp.MustCompile(`\b`+was+`\b`).ReplaceAllString(text, is)
	}
	text = strings.ReplaceAll(text, "0.0.0.0:", "127.0.0.1:")
	text = strings.ReplaceAll(text, "cd examples/grpc/greeter", `cd "$GREETER"`)
	return absolute.ReplaceAllString(text, "${1}"+p.root+"/$2/")
}

// starts starts a command that runs until the page ends. It returns the file with its output.
func (p *typist) starts(cmd *exec.Cmd) (log string) {
	p.Helper()
	log = filepath.Join(p.root, fmt.Sprint("log", time.Now().UnixNano()))
	f, err := os.Create(log)
	if err != nil {
		p.Fatal(err)
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { p.ends(cmd) })
	return log
}

// awaits waits until a started command is ready.
func (p *typist) awaits(line, log string, within time.Duration, ready func() bool) {
	p.Helper()
	for end := time.Now().Add(within); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b, _ := os.ReadFile(log)
			p.Fatalf("%s: the command did not succeed\n%s", line, b)
		}
	}
}

// answers reports whether an HTTP server answers a GET with 200.
func answers(address string) bool {
	r, err := http.Get("http://" + address)
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// types runs a command. A server runs until the page ends, or the next one is started.
func (p *typist) types(c command) {
	p.Helper()
	line, compiles := p.moved(c.line), strings.Contains(c.line, "go run")
	if compiles && os.Getenv("DOCS_COMPILE") == "" {
		p.Logf("make examples runs %q", c.line)
		return
	}
	if strings.Contains(c.line, "envoy -c") && p.envoy == "" {
		p.Logf("there is no Envoy for %q", c.line)
		return
	}
	cmd := exec.Command("sh", "-c", p.moved(c.prelude)+line)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = p.root, p.env, &syscall.SysProcAttr{Setpgid: true}
	server := strings.HasPrefix(line, "chancery serve")
	if stays := server || strings.Contains(line, "--watch") || strings.Contains(line, "endpoints follow") || strings.Contains(line, "go run . serve") ||
		strings.Contains(line, "envoy -c") && !strings.Contains(line, "xds.example"); stays {
		if server && p.server != nil {
			p.ends(p.server)
		}
		cmd.Args[2] = p.moved(c.prelude) + regexp.MustCompile(`^chancery`).ReplaceAllString(line, "exec chancery") // the command ends with its shell
		log := p.starts(cmd)
		if server {
			p.server = cmd
		}
		ready := func() bool { return true }
		switch {
		case server:
			ready = func() bool { b, _ := os.ReadFile(log); return strings.Contains(string(b), `"msg":"serving"`) }
		case strings.Contains(line, "envoy -c"):
			ready = func() bool { return answers("127.0.0.1:" + p.ports["9901"] + "/ready") }
		}
		p.awaits(c.line, log, 20*time.Second, ready)
		return
	}
	// A command that asks a server is repeated until there is an answer, as a reader would do.
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		switch {
		case err == nil && (!c.shown || prints(string(out), p.moved(strings.Join(c.prints, "\n")))):
			return
		case strings.Contains(line, "curl ") && time.Now().Before(end), compiles && time.Now().Before(end):
			again := exec.Command("sh", "-c", cmd.Args[2])
			again.Dir, again.Env = cmd.Dir, cmd.Env
			cmd = again
			continue
		}
		p.Fatalf("$ %s\n%s%s%v; the page shows\n%s", c.line, out, &said, err, strings.Join(c.prints, "\n"))
	}
}

func (p *typist) ends(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
	}
}

// prints reports whether an output equals the output on a page. White space does not count, because
// protobuf's JSON varies it at random.
func prints(out, shown string) bool {
	dense := func(text string) string { return strings.Join(strings.Fields(text), "") }
	parts := strings.Split(dense(shown), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(dense(out))
}
