package listen

import (
	"net"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in       string
		want     Address
		out      string // "": in
		loopback bool
		any      bool
	}{
		{in: ":18000", want: Address{Network: "tcp", Port: 18000}, any: true},
		{in: "0.0.0.0:1", want: Address{Network: "tcp", Host: "0.0.0.0", Port: 1}, any: true},
		{in: "[::]:1", want: Address{Network: "tcp", Host: "::", Port: 1}, any: true},
		{in: "127.0.0.1:0", want: Address{Network: "tcp", Host: "127.0.0.1"}, loopback: true},
		{in: "127.9.9.9:80", want: Address{Network: "tcp", Host: "127.9.9.9", Port: 80}, loopback: true},
		{in: "[::1]:65535", want: Address{Network: "tcp", Host: "::1", Port: 65535}, loopback: true},
		{in: "[::ffff:127.0.0.1]:1", want: Address{Network: "tcp", Host: "::ffff:127.0.0.1", Port: 1}, loopback: true},
		{in: "[fe80::1%eth0]:1", want: Address{Network: "tcp", Host: "fe80::1%eth0", Port: 1}},
		{in: "LocalHost:1", want: Address{Network: "tcp", Host: "LocalHost", Port: 1}, loopback: true},
		{in: "localhost.:1", want: Address{Network: "tcp", Host: "localhost.", Port: 1}, loopback: true},
		{in: "localhost.evil.example:1", want: Address{Network: "tcp", Host: "localhost.evil.example", Port: 1}},
		{in: "xds.example:18000", want: Address{Network: "tcp", Host: "xds.example", Port: 18000}},
		{in: "10.0.0.1:1", want: Address{Network: "tcp", Host: "10.0.0.1", Port: 1}},
		{in: "unix:///run/xds.sock", want: Address{Network: "unix", Path: "/run/xds.sock"}, loopback: true},
		{in: "unix:/run/xds.sock", out: "unix:///run/xds.sock", want: Address{Network: "unix", Path: "/run/xds.sock"}, loopback: true},
		{in: "unix:xds.sock", want: Address{Network: "unix", Path: "xds.sock"}, loopback: true},
	} {
		got, err := Parse(c.in)
		if err != nil || got != c.want {
			t.Errorf("%q: %+v, %v, want %+v", c.in, got, err, c.want)
		}
		if c.out == "" {
			c.out = c.in
		}
		if s := got.String(); s != c.out {
			t.Errorf("%q is written %q, want %q", c.in, s, c.out)
		}
		if again, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("%q: read again: %+v, %v", c.in, again, err)
		}
		if got.Loopback() != c.loopback || got.Any() != c.any {
			t.Errorf("%q: loopback %v, any %v, want %v, %v", c.in, got.Loopback(), got.Any(), c.loopback, c.any)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "missing port in address; want host:port",
		"http://127.0.0.1:9901/":            `"http://" does not belong there: did you mean 127.0.0.1:9901?`,
		"localhost":                         "missing port in address; want host:port",
		"18000":                             "did you mean 127.0.0.1:18000?",
		"::1:18000":                         "too many colons in address",
		"host:http":                         `port "http" is not a number`,
		"host:":                             `port "" is not a number`,
		"host:65536":                        `port "65536" is not a number between 0 and 65535`,
		"host:-1":                           "is not a number",
		"[localhost:1]:1":                   "is not an IPv6 address",
		"http://localhost:1":                "did you mean localhost:1?",
		"//localhost:1":                     "without a scheme",
		"unix:":                             "a path is missing",
		"unix://":                           "unix:// needs an absolute path",
		"unix://run/xds.sock":               "unix:///run/xds.sock, or unix:run/xds.sock",
		"unix:@abstract":                    "without a file is not supported",
		"unix:/" + strings.Repeat("x", 200): "the path has 201 bytes",
	} {
		a, err := Parse(in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want an error with %q", in, a, err, want)
			continue
		}
		if a != (Address{}) || !strings.HasPrefix(err.Error(), `address "`) {
			t.Errorf("%q: %+v, %v", in, a, err)
		}
	}
}

func TestLoopbackOfAddr(t *testing.T) {
	for _, c := range []struct {
		addr net.Addr
		want bool
	}{
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, true},
		{&net.TCPAddr{IP: net.IPv6loopback}, true},
		{&net.TCPAddr{IP: net.IPv4zero}, false},
		{&net.TCPAddr{IP: net.IPv6unspecified}, false},
		{&net.TCPAddr{}, false},
		{&net.UnixAddr{Name: "x"}, true},
		{&net.UDPAddr{IP: net.IPv6loopback}, false},
		{nil, false},
	} {
		if got := Loopback(c.addr); got != c.want {
			t.Errorf("%v: %v", c.addr, got)
		}
	}
}
