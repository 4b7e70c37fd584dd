package storeclient

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/auth/certs"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/etcd"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/file"
	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/listen"
)

// Flags are the flags that name a revision store.
type Flags struct {
	URL          string
	secure       bool
	files        certs.ClientFiles
	user         string
	passwordFile string

	MayCreate bool // the directory of the store may be missing or empty
	LostHead  bool // the command works on a store that has lost its head
}

// Register adds the flags of the store.
func (s *Flags) Register(f *pflag.FlagSet) {
	f.StringVar(&s.URL, "store", "", "`URL` of the store: file:DIR, or etcd://HOST:PORT,HOST:PORT/PREFIX")
	f.BoolVar(&s.secure, "store-tls", false, "use TLS to the etcd, with the system's CAs unless --store-ca names another")
	f.StringVar(&s.files.CA, "store-ca", "", "`FILE` with the CA of the etcd's certificates; turns TLS on, as do the two flags below")
	f.StringVar(&s.files.Cert, "store-cert", "", "`FILE` with a client certificate for the etcd")
	f.StringVar(&s.files.Key, "store-key", "", "`FILE` with its private key")
	f.StringVar(&s.user, "store-user", "", "`NAME` of the user in the etcd")
	f.StringVar(&s.passwordFile, "store-password-file", "", "`FILE` with the password of that user")
}

func (s *Flags) tls() bool { return s.secure || s.files != (certs.ClientFiles{}) }

// Check parses the URL of the store. Its errors are errors of usage. The options are nil for a directory.
func (s *Flags) Check() (dir string, of *etcdkv.Options, err error) {
	dir, isDir := strings.CutPrefix(s.URL, "file:")
	switch {
	case s.URL == "":
		return "", nil, errors.New("--store is missing: file:DIR, or etcd://HOST:PORT/PREFIX")
	case isDir && dir == "":
		return "", nil, errors.New("--store: the directory after file: is missing")
	case isDir && (s.tls() || s.user != "" || s.passwordFile != ""):
		return "", nil, errors.New("--store: a directory needs neither TLS nor a user")
	case isDir:
		return dir, nil, nil
	case (s.files.Cert == "") != (s.files.Key == ""):
		return "", nil, errors.New("--store-cert and --store-key: give both or none")
	case (s.user == "") != (s.passwordFile == ""):
		return "", nil, errors.New("--store-user and --store-password-file: give both or none")
	}
	if !strings.HasPrefix(s.URL, "etcd://") {
		return "", nil, fmt.Errorf("--store: %q: write file:DIR or etcd://HOST:PORT/PREFIX", s.URL)
	}
	o, err := etcdkv.Parse(s.URL)
	if err != nil {
		return "", nil, fmt.Errorf("--store: %w", err)
	}
	if s.user != "" && s.PlainText(&o) {
		return "", nil, errors.New("--store-user: the password would be sent over the network in plain text: give --store-tls or --store-ca")
	}
	return "", &o, nil
}

// PlainText reports whether the store's content crosses a network in plain text.
func (s *Flags) PlainText(of *etcdkv.Options) bool {
	if of == nil || s.tls() {
		return false
	}
	for _, e := range of.Endpoints {
		if host, _, _ := net.SplitHostPort(e); !(listen.Address{Network: "tcp", Host: host}).Loopback() {
			return true
		}
	}
	return false
}

// Open returns the engine of the store, and its closer.
func (s *Flags) Open(log *slog.Logger) (revisions.Engine, io.Closer, error) {
	dir, of, err := s.Check()
	if err != nil {
		return nil, nil, err
	}
	if of == nil {
		switch is, free, err := file.Found(dir); {
		case err != nil:
			return nil, nil, cli.Fail(fmt.Errorf("%s: %w", s.URL, err), "")
		case !is && !free:
			return nil, nil, cli.FailWith(cli.NotFound, fmt.Errorf("%s contains other files, but not a store", dir), "a new store needs a directory that is empty or does not exist")
		case !is && !s.MayCreate:
			return nil, nil, cli.FailWith(cli.NotFound, fmt.Errorf("%s does not contain a store", dir), "chancery apply and chancery serve create one")
		}
		e, err := file.Open(dir, log)
		if err != nil {
			return nil, nil, cli.Fail(fmt.Errorf("%s: %w", s.URL, err), "")
		}
		return e, io.NopCloser(nil), nil
	}
	if s.tls() {
		of.TLS, err = s.files.Config(log)
		if err != nil {
			return nil, nil, cli.Fail(err, "")
		}
	}
	of.Username, of.Log = s.user, log
	if s.user != "" {
		b, err := disk.ReadSecret(s.passwordFile)
		if err != nil {
			return nil, nil, cli.Fail(fmt.Errorf("--store-password-file: %w", err), "")
		}
		of.Password = strings.TrimRight(string(b), "\r\n")
	}
	conn, err := etcdkv.Open(*of)
	if err != nil {
		return nil, nil, cli.Fail(err, "")
	}
	return etcd.New(conn), conn, nil
}
