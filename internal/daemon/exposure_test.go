package daemon

import (
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/auth/certs"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

func TestExposureOfSecrets(t *testing.T) {
	secured, mutual := certs.Files{Cert: "crt", Key: "key"}, certs.Files{Cert: "crt", Key: "key", ClientCA: "ca"}
	for _, tt := range []struct {
		name, listen, rest string
		tls                certs.Files
		want               string // part of the error; "" for none
	}{
		{"SAFE-11 plain", "0.0.0.0:1", "", certs.Files{}, "in plain text, from 0.0.0.0:1: give --tls-cert, --tls-key and --client-ca,"},
		{"SAFE-11 the second of two", "127.0.0.1:1,10.0.0.1:2", "", certs.Files{}, "in plain text, from 10.0.0.1:2:"},
		{"SAFE-11 plain over REST", "127.0.0.1:1", "[::]:2", certs.Files{}, "in plain text, from [::]:2:"},
		{"SAFE-11 TLS without client certificates", "0.0.0.0:1", "", secured, "to every client that connects to 0.0.0.0:1: give --client-ca,"},
		{"SAFE-11 the same over REST", "127.0.0.1:1", "10.0.0.1:2", secured, "to every client that connects to 10.0.0.1:2: give --client-ca,"},
		{"SAFE-11 clients with certificates", "0.0.0.0:1", "0.0.0.0:2", mutual, ""},
		{"SAFE-11 this machine", "127.0.0.1:1,localhost:2,unix:///s", "[::1]:3", certs.Files{}, ""},
		{"SAFE-11 this machine, with TLS", "127.0.0.1:1,unix:///s", "unix:///r", secured, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, r := &listenFlags{addresses: strings.Split(tt.listen, ","), tls: tt.tls}, &restFlags{address: tt.rest}
			if err := f.check(); err != nil {
				t.Fatal(err)
			}
			if err := r.check(); err != nil {
				t.Fatal(err)
			}
			at := len(f.parsed)
			all := []dir.Loaded{{Resource: xds.NewResource(xds.Cluster, "a", nil)}, {Resource: xds.NewResource(xds.Listener, "l", nil), Secret: "key"}}
			e := exposed(f, r)
			if err := e.Refuse(all[:1]); err != nil {
				t.Error("a resource without a secret is refused:", err)
			}
			switch err := e.Refuse(all); {
			case tt.want == "" && err != nil, tt.want != "" && err == nil:
				t.Errorf("%v, want %q", err, tt.want)
			case err != nil && !strings.Contains(err.Error(), `the secret in key of LDS "l" would be sent `) || err != nil && !strings.Contains(err.Error(), tt.want):
				t.Errorf("%v, want %q", err, tt.want)
			}
			if len(f.parsed) != at {
				t.Error("exposed changed the addresses")
			}
		})
	}
}
