package dir

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
)

// inspect records the secrets and certificates of a resource. It returns the first error in them,
// without a place in the file; the zero Problem if there is none.
func (rd *reader) inspect(l *Loaded, m proto.Message) (p findings.Problem) {
	found := rd.secrets.Find(m)
	if len(found.Values) > 0 {
		l.Secret = found.Values[0]
	}
	l.certificates, l.v2 = found.Certificates, found.V2
	if found.TooDeep != "" {
		return findings.Problem{Path: found.TooDeep, Message: fmt.Sprintf("google.protobuf.Any nested more than %d deep", secrets.MaxAnyDepth)}
	}
	// No client can use such a value, and its secrets cannot be found.
	if len(found.Unread) > 0 {
		u := found.Unread[0]
		return findings.Problem{Path: u.Path, Message: fmt.Sprintf("the value is not a valid %s: %s", u.Type, protoyaml.Unprefixed(u.Err))}
	}
	for _, c := range found.Certificates {
		if c.Err != nil {
			return findings.Problem{Path: c.Path, Code: findings.KeyPair, Message: c.Err.Error()}
		}
	}
	return p
}

// v2Errors returns a mistake for each resource of the v2 API, and for each v2 message in another resource.
// Current clients refuse them, and the option serves them nevertheless.
func v2Errors(all []Loaded, option string) (errs []findings.Problem) {
	for _, l := range all {
		if l.Type.V2 {
			p := l.Pos.problem("%s %q is of the v2 API, which Envoy no longer supports: %s", l.Type, l.Name, strings.TrimPrefix(l.Type.URL, apis))
			p.Hint, p.Code = option+" serves it as it is", findings.V2
			errs = append(errs, p)
			continue
		}
		for _, v := range l.v2 {
			p := l.Pos.problem("%s %q has in %s a message of the v2 API, which Envoy no longer supports: %s", l.Type, l.Name, v.Path, v.Type)
			p.Hint, p.Code = option+" serves it as it is", findings.V2
			errs = append(errs, p)
		}
	}
	return errs
}

// certificateWarnings returns a warning for each certificate that has expired or expires soon.
func (f *file) certificateWarnings(now time.Time) (warnings []findings.Problem) {
	for _, l := range f.loaded {
		for _, c := range l.certificates {
			if c.Ends.IsZero() || c.Ends.Sub(now) > secrets.Soon {
				continue
			}
			what := "expires at"
			if !now.Before(c.Ends) {
				what = "expired at"
			}
			p := l.Pos.problem("%s %q: the certificate in %s %s %s", l.Type, l.Name, c.Path, what, c.Ends.UTC().Format(time.RFC3339))
			p.Warning, p.Code, p.Hint = true, findings.ExpiringCertificate, "clients refuse an expired certificate"
			warnings = append(warnings, p)
		}
	}
	return warnings
}

// An expiry is when the first certificate of the served resources expires.
type expiry struct{ at atomic.Int64 } // in seconds of Unix time; 0: there is no certificate

// set sets the time to the first expiry of all certificates in the groups.
func (e *expiry) set(worlds ...groupContent) {
	first := time.Time{}
	for _, w := range worlds {
		for _, c := range w.types {
			for _, l := range c.at {
				for _, c := range l.certificates {
					if !c.Ends.IsZero() && (first.IsZero() || c.Ends.Before(first)) {
						first = c.Ends
					}
				}
			}
		}
	}
	if first.IsZero() {
		e.at.Store(0)
		return
	}
	e.at.Store(first.Unix())
}

// FirstExpiry returns when the first certificate of the served resources expires; the zero time if
// they have none.
func (s *Source) FirstExpiry() time.Time {
	if at := s.expiry.at.Load(); at != 0 {
		return time.Unix(at, 0)
	}
	return time.Time{}
}

// A Certificate is a certificate in a served resource.
type Certificate struct {
	Occurrence
	Path string    // path of the message with the certificate; "" for the resource itself
	Ends time.Time // the first end in the chain
}

// Certificates returns the certificates in the served resources, by their end. It leaves out files of the clients'
// machines.
func (s *Source) Certificates() (all []Certificate) {
	now := s.served.Load()
	if now == nil {
		return nil
	}
	for group, w := range now.contents {
		for _, c := range w.types {
			for _, l := range c.at {
				for _, one := range l.certificates {
					if !one.Ends.IsZero() {
						all = append(all, Certificate{Occurrence{Loaded: l, Group: group, Served: true}, one.Path, one.Ends})
					}
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Certificate) int {
		return cmp.Or(a.Ends.Compare(b.Ends), byGroup(a.Group, b.Group), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path))
	})
	return all
}
