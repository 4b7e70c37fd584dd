package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// A check reports the findings of a text with their places, missing references, and the changes. References to served
// resources are no findings.
func TestCheck(t *testing.T) {
	const route = `"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
name: r
virtual_hosts:
- name: all
  domains: ["*"]
  routes:
  - match: {prefix: /}
    route: {cluster: %s}
`
	within(t, "check", func(t *testing.T) {
		r := start(t, "a.yaml", plainCluster)
		for text, want := range map[string]string{
			fmt.Sprintf(route, "a"): "0 errors, 0 warnings; added RDS r at 1:1; ",
			fmt.Sprintf(route, "b"): `0 errors, 1 warnings; warning XDS0201 1:1 RDS "r" refers to CDS "b", which does not exist; added RDS r at 1:1; `,
			fmt.Sprintf(route, "b") + "---\n" + strings.Replace(plainCluster, "name: a", "name: b", 1): "0 errors, 0 warnings; added RDS r at 1:1; added CDS b at 10:1; ",
			plainCluster:                           "0 errors, 0 warnings; 1 unchanged",
			plainCluster + "connect_timeout: 2s\n": "0 errors, 0 warnings; changed CDS a at 1:1; ",
			plainCluster + "connect_timeout: x\n":  "1 errors, 0 warnings; error XDS0103 3:18 ",
			plainCluster + "colour: red\n":         `1 errors, 0 warnings; error XDS0102 3:1 unknown field "colour"`,
			plainCluster + "alt_stat_name: [\n":    "1 errors, 0 warnings; error XDS0101 ",
			"just words":                           "1 errors, 0 warnings; error ",
		} {
			c, plan := r.Check("default", []byte(text))
			got := fmt.Sprintf("%d errors, %d warnings; ", c.Errors, c.Warnings)
			for _, f := range c.Findings {
				kind := "error"
				if f.Warning {
					kind = "warning"
				}
				got += fmt.Sprintf("%s %s %d:%d %s; ", kind, f.Code, f.Line, f.Column, f.Message)
			}
			for _, one := range c.Changes {
				got += one.Change + " " + one.Type + " " + one.Name + " at " + one.Place + "; "
			}
			if c.Unchanged > 0 {
				got += fmt.Sprint(c.Unchanged, " unchanged")
			}
			if !strings.HasPrefix(got, want) || len(plan) != c.Total {
				t.Errorf("%q: %s, want %s", text, got, want)
			}
		}
	})
}

// SAFE-6: a check neither logs nor returns a secret of its text, even if the text cannot be read.
func TestCheckRevealsNoSecrets(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	r := start(t, "a.yaml", plainCluster)
	const secret = `"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
name: s
# hunter1
generic_secret: {secret: {inline_string: hunter2}}
`
	for _, text := range []string{
		secret,
		secret + "colour: hunter3\n",
		strings.Replace(secret, "inline_string: hunter2", "inline_string: {hunter2: hunter3}", 1),
		strings.Replace(secret, "hunter2}}", "hunter2", 1),
		strings.Replace(secret, "{inline_string: hunter2}", "hunter2", 1),
	} {
		c, _ := r.Check("default", []byte(text))
		b, err := json.Marshal(c)
		if err != nil || strings.Contains(string(b), "hunter") {
			t.Errorf("%s: %s, %v", text, b, err)
		}
		if text != secret && c.Errors == 0 {
			t.Errorf("%s: no errors", text)
		}
	}
	if strings.Contains(log.String(), "hunter") {
		t.Error(log.String())
	}
}

// SAFE-6: a check does not confirm a guess of a served secret, nor report its size.
func TestCheckComparesNoSecrets(t *testing.T) {
	const secret = `"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
name: s
generic_secret: {secret: {inline_string: hunter2}}
`
	for _, guess := range []string{"hunter2", "hunter3", "hunter22"} {
		within(t, "SAFE-6 "+guess, func(t *testing.T) {
			c, _ := start(t, "a.yaml", secret).Check("default", []byte(strings.Replace(secret, "hunter2", guess, 1)))
			if c.Unchanged != 0 || len(c.Changes) != 1 || c.Changes[0].Change != "changed" || c.Changes[0].Before != 0 {
				t.Errorf("%+v", c)
			}
		})
	}
}
