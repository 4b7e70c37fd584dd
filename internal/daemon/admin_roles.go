package daemon

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"os/user"
	"reflect"
	"strconv"
	"sync/atomic"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/admin"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/oidc"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/disk"
)

// adminRoles are the roles of the callers of the admin API. The server reads the roles file and the files of its
// tokens again when they change.
type adminRoles struct {
	file    *rulesFile[roles.Policy]
	current atomic.Pointer[roles.Policy] // with its tokens
	issuer  atomic.Pointer[oidc.Provider]

	// The running read owns these fields.
	parsed *roles.Policy
	tokens map[string]string // by name
	errors map[string]string // the last error of a file in the log, by name of the token; "" is the secret of the client
	client oidc.Config       // of the issuer
}

// caError is the key of the error of the issuer's CA, which is not the name of a token.
const caError = "oidc CA"

const (
	rolesFlag = "--admin-roles"
	rolesHint = "--admin-roles names the file with the roles of callers"
)

func newAdminRoles(path string) *adminRoles {
	parse := func(file string, data []byte) (*roles.Policy, []findings.Problem) {
		return roles.Parse(file, data, uidOf)
	}
	return &adminRoles{file: &rulesFile[roles.Policy]{path: path, flag: rolesFlag, noun: "admin roles", parse: parse}}
}

// uidOf returns the number of a user of this machine.
func uidOf(name string) (int, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("user %q is unknown on this machine", name)
	}
	return strconv.Atoi(u.Uid)
}

// load reads the files at the start. An error ends the program.
func (a *adminRoles) load(log *slog.Logger) error {
	p, err := a.file.load(log, rolesHint)
	if err != nil {
		return err
	}
	a.parsed = p
	tokens := map[string]string{}
	for _, f := range p.TokenFiles() {
		tokens[f.Name], err = readTokenFile(rolesFlag+": "+f.Place+": token "+f.Name, f.Path)
		if err != nil {
			return cli.Fail(err, "")
		}
	}
	secret, err := a.readSecret()
	if err != nil {
		return cli.Fail(err, "")
	}
	ca, err := a.readCA()
	if err != nil {
		return cli.Fail(err, "")
	}
	a.use(tokens, secret, ca)
	return nil
}

// readSecret reads the file with the secret of the issuer's client; "" if the roles file names none.
func (a *adminRoles) readSecret() (string, error) {
	c := a.parsed.Issuer()
	if c == nil || c.SecretFile == "" {
		return "", nil
	}
	return readTokenFile(rolesFlag+": "+a.parsed.SecretPlace(), c.SecretFile)
}

// readCA reads the file with the CAs of the issuer's certificate; "" if the roles file names none.
func (a *adminRoles) readCA() (string, error) {
	c := a.parsed.Issuer()
	if c == nil || c.CAFile == "" {
		return "", nil
	}
	b, err := disk.ReadRegular(c.CAFile, 1<<20)
	if err != nil {
		return "", fmt.Errorf("%s: %w", rolesFlag, err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(b) {
		return "", fmt.Errorf("%s: %s has no certificate in PEM", rolesFlag, c.CAFile)
	}
	return string(b), nil
}

func (a *adminRoles) use(tokens map[string]string, secret, ca string) {
	c := oidc.Config{Secret: secret, CA: ca}
	if is := a.parsed.Issuer(); is != nil {
		c.OIDC = *is
	}
	if !reflect.DeepEqual(c, a.client) {
		a.client = c
		a.issuer.Store(nil)
		if c.Issuer != "" {
			a.issuer.Store(oidc.New(c))
		}
	}
	a.tokens = tokens
	a.current.Store(a.parsed.WithTokens(tokens))
}

// run applies changed files until ctx is done. An invalid roles file has no effect. An unreadable token is not valid
// any more.
func (a *adminRoles) run(ctx context.Context, log *slog.Logger) {
	a.file.repeat(ctx, log, func() {
		before := a.parsed
		a.file.reload(log, func(p *roles.Policy) { a.parsed = p })
		tokens, failed := map[string]string{}, map[string]string{}
		isNew := func(key string, err error) bool { // so that each error is logged once
			failed[key] = err.Error()
			return a.errors[key] != err.Error()
		}
		for _, f := range a.parsed.TokenFiles() {
			token, err := readTokenFile(rolesFlag+": "+f.Place, f.Path)
			switch {
			case err == nil:
				tokens[f.Name] = token
			case isNew(f.Name, err):
				log.Warn("a token of the admin roles is unreadable, refusing it", "token", f.Name, "error", err)
			}
		}
		secret, err := a.readSecret()
		if err != nil && isNew("", err) {
			log.Warn("the client secret of the admin roles is unreadable, browsers cannot sign in by the issuer", "error", err)
		}
		ca, err := a.readCA()
		if err != nil {
			ca = a.client.CA
			if isNew(caError, err) {
				log.Warn("the CA of the issuer in the admin roles is unreadable, keeping the previous one", "error", err)
			}
		}
		a.errors = failed
		if a.parsed != before || !maps.Equal(tokens, a.tokens) || secret != a.client.Secret || ca != a.client.CA {
			a.use(tokens, secret, ca)
		}
	})
}

// oidc returns the issuer; nil if the roles file has none.
func (a *adminRoles) oidc() admin.OIDC {
	if is := a.issuer.Load(); is != nil {
		return is
	}
	return nil
}

// troubles returns the trouble of a rejected roles file. Nil roles have none.
func (a *adminRoles) troubles() []api.Trouble {
	if a == nil {
		return nil
	}
	is := a.file.rejected.Load()
	if is == nil {
		return nil
	}
	return []api.Trouble{{Code: api.RejectedRoles, Since: is.since, Text: "the roles file of the admin API is rejected, and the previous one is in use: " + is.text}}
}
