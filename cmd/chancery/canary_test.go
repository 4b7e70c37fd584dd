package main

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

const canary = "hunter2Quokkas"

// Mistakes whose values would be quoted in a field that is not sensitive.
var canaries = map[string]string{
	"shape.yaml":   `{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: a, generic_secret: {secret: ` + canary + `}}`,
	"high.yaml":    `{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: b, generic_secret: ` + canary + `}`,
	"base64.yaml":  `{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: c, tls_certificate: {password: {inline_bytes: "` + canary + `!"}}}`,
	"brace.yaml":   `{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: d, generic_secret: {secret: {` + canary + `}}}`,
	"key.yaml":     "\"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\nname: e\ngeneric_secret: {secrett: {inline_string: " + canary + "}}\n",
	"alias.yaml":   `{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: f, generic_secret: {secret: {inline_string: *` + canary + `}}}`,
	"tag.yaml":     `{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: g, generic_secret: {secret: {inline_string: !` + canary + ` x}}}`,
	"field.yaml":   `{"@type": type.googleapis.com/envoy.config.trace.v3.ClientConfig, backend_token: [` + canary + `]}`,
	"syntax.json":  `{"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "h", "generic_secret": {"secret": {"inline_string": "` + canary + `" x}}}`,
	"bare.txtpb":   "resources { [type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret] { name: \"i\" generic_secret { secret { inline_string: " + canary + " } } } }",
	"escape.txtpb": "resources { [type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret] { name: \"j\" generic_secret { secret { inline_bytes: \"\\x" + canary + "\" } } } }",
}

// No command prints the value of a sensitive field.
func TestCanaries(t *testing.T) {
	dir := t.TempDir()
	for name, content := range canaries {
		write(t, dir, "bad/"+name, content)
	}
	write(t, dir, "good/s.yaml", strings.Replace(secret, "inline_string: pw", "inline_string: "+canary, 1))
	for _, tt := range []struct {
		args string
		code int
	}{
		{"check bad", 1}, {"check bad -o json", 1}, {"serve bad --log-level debug", 1}, {"export bad --out out", 1}, {"check good", 0}, {"export good --out out", 0},
		{"serve good --listen 0.0.0.0:0 --log-level debug", 1},
	} {
		t.Run("SAFE-6 "+tt.args, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), binary, strings.Fields(tt.args)...)
			cmd.Dir = dir
			out, _ := cmd.CombinedOutput() // the exit code reports errors
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if strings.Contains(string(out), canary) {
				t.Errorf("SAFE-6 shown:\n%s", out)
			}
			for name := range canaries {
				if strings.HasSuffix(tt.args, "bad") && !strings.Contains(string(out), filepath.Join("bad", name)+":") {
					t.Errorf("%s is not mentioned in\n%s", name, out)
				}
			}
		})
	}
	t.Run("SAFE-6 a reload", func(t *testing.T) {
		state := t.TempDir()
		d := serve(t, []string{"--log-level", "debug", "--state-dir", state}, "s.yaml", strings.Replace(secret, "inline_string: pw", "inline_string: "+canary, 1))
		d.subscribe(xds.Secret).gets("key")
		for name, content := range canaries {
			write(t, d.dir, name, content)
		}
		out, err := exec.CommandContext(t.Context(), binary, "reload", d.dir, "--state-dir", state).CombinedOutput()
		if err == nil || strings.Count(string(out), "\n") < len(canaries) || strings.Contains(string(out), canary) {
			t.Errorf("reload: %v\n%s", err, out)
		}
	})
}

// The log of a server contains no value of a sensitive field either, from start to end.
func TestLogHasNoCanary(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "s.yaml", strings.Replace(secret, "inline_string: pw", "inline_string: "+canary, 1))
	cmd := exec.CommandContext(t.Context(), binary, "serve", dir, "--listen", "127.0.0.1:0", "--log-level", "debug", "--log-format", "json")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	lines := bufio.NewScanner(io.TeeReader(stderr, &log))
	for serving := false; lines.Scan(); {
		switch line := lines.Text(); {
		case strings.Contains(line, `"msg":"serving"`):
			serving = true
			for name, content := range canaries {
				write(t, dir, name, content)
			}
		case serving && strings.Contains(line, "tag.yaml") && strings.Contains(log.String(), "alias.yaml"): // the last mistake of all files
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait() // killed
	if !strings.Contains(log.String(), "alias.yaml") || strings.Contains(log.String(), canary) {
		t.Errorf("SAFE-6 %s", log.String())
	}
}
