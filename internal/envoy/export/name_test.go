package export

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

func TestFileName(t *testing.T) {
	a := func(n int) string { return strings.Repeat("a", n) }
	for name, want := range map[string]string{
		"backend":                "backend",
		"a-b_c.d.example:8080":   "a-b_c.d.example%3a8080",
		"outbound|80||Reviews.x": "outbound%7c80%7c%7c%52eviews.x",
		"../../etc/passwd":       "%2e.%2f..%2fetc%2fpasswd",
		".":                      "%2e",
		"_hidden":                "%5fhidden",
		"~":                      "%7e",
		"%41":                    "%2541",
		"ü":                      "%c3%bc",
		"\xff\x00":               "%ff%00",
		a(120):                   a(120),
		a(121):                   a(87) + "~" + sum(a(121)),
		a(86) + "/" + a(40):      a(86) + "~" + sum(a(86)+"/"+a(40)), // not cut inside an escape
	} {
		if got := fileName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func sum(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:16]) }

// nameOf is the inverse of fileName for names that it does not shorten.
func nameOf(t *testing.T, file string) string {
	var b strings.Builder
	for i := 0; i < len(file); i++ {
		if file[i] != '%' {
			b.WriteByte(file[i])
			continue
		}
		c, err := hex.DecodeString(file[i+1 : i+3])
		if err != nil {
			t.Fatalf("%q: %v", file, err)
		}
		b.Write(c)
		i += 2
	}
	return b.String()
}

// Different names get different files on every file system.
func FuzzFileName(f *testing.F) {
	for _, s := range []string{"a", "A", "/", ".", "%", "~", "ü", "\xff", strings.Repeat("ä", 200), strings.Repeat("a", 118) + "/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" {
			return // no resource has this name
		}
		got := fileName(name)
		if len(got) > maxFileName || strings.ToLower(got) != got || strings.ContainsAny(got[:1], "._") {
			t.Errorf("%q: %q", name, got)
		}
		for _, c := range []byte(got) {
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_.%~", rune(c)) {
				t.Errorf("%q: %q has a %q", name, got, c)
			}
		}
		if !strings.Contains(got, "~") {
			if back := nameOf(t, got); back != name {
				t.Errorf("%q: %q is the file name of %q", name, got, back)
			}
			return
		}
		if begins := nameOf(t, got[:strings.LastIndexByte(got, '~')]); !strings.HasPrefix(name, begins) {
			t.Errorf("%q: %q does not keep the beginning %q", name, got, begins)
		}
		if other := fileName(name + "x"); other == got {
			t.Errorf("%q and a longer name are both %q", name, got)
		}
	})
}

func TestPathOf(t *testing.T) {
	f := formats[0]
	for _, tt := range []struct {
		t          *xds.Type
		name, want string
	}{
		{xds.Listener, "x", "lds.yaml"},
		{xds.Cluster, "x", "cds.yaml"},
		{xds.ScopedRoute, "x", "srds.yaml"},
		{xds.Endpoint, "a/b", "eds/a%2fb.yaml"},
		{xds.Route, "Local", "rds/%4cocal.yaml"},
		{xds.Secret, "x", "sds/x.yaml"},
		{xds.ExtensionConfig, "x", "ecds/x.yaml"},
		{xds.Runtime, "x", "rtds/x.yaml"},
		{xds.Endpoint, "xdstp://a/t/x?b=1&a=2", "eds/" + fileName("xdstp://a/t/x?a=2&b=1") + ".yaml"},
		{xds.Cluster.Legacy(), "x", "envoy.api.v2.%43luster/x.yaml"},
		{xds.VirtualHost.Legacy(), "x", "envoy.api.v2.route.%56irtual%48ost/x.yaml"},
		{xds.TypeOf("type.googleapis.com/envoy.x.v3.Thing"), "x", "envoy.x.v3.%54hing/x.yaml"},
	} {
		if got := f.pathOf(tt.t, tt.name); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.t, tt.name, got, tt.want)
		}
	}
}
