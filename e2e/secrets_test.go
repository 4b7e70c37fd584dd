package e2e

import (
	"bytes"
	"crypto/elliptic"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	envoytls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// Certificates and trusted authorities change under TLS traffic. No request fails, open connections
// continue, and new connections use the new certificates.
func TestSecretsRotated(t *testing.T) {
	t.Parallel()
	everywhere(t, "TYP-2 SOTW-9 DELTA-8 DELTA-12 SOTW-21 secrets rotate, are refused, go and return", func(t *testing.T, v variant) {
		s, servers, clients := secureSite(t, v)
		kept := clients.caller(t, s.ingressPort, true, servers)
		anew := clients.caller(t, s.ingressPort, false, servers)
		eventually(t, soon, "a connection stands", kept.gets(answer{"a", "certificate 1"}))
		l, l2 := loadedAt(t, 50, s.ingress, nil), loadedAt(t, 20, anew, nil)

		p := s.Here()
		var last pair
		for i := 2; i < 5; i++ {
			name := fmt.Sprint("certificate ", i)
			last = servers.issue(t, name)
			s.commit(name, func(w world) { w.set(certificate("server", last)) })
			eventually(t, soon, "new connections see it", anew.gets(answer{"a", name}))
			s.quiet()
		}
		if err := kept.gets(answer{"a", "certificate 1"})(); err != nil {
			t.Error("a connection that stood before:", err)
		}
		for _, r := range s.Since(p).Responses() {
			carries(t, "SDS server", tap.Records{r})
		}

		// Envoy may refuse a key that Go can read: a key on a curve that Envoy does not support.
		odd := servers.issueOn(t, "certificate 0", elliptic.P224())
		p = s.commit("a certificate that Envoy does not take", func(w world) { w.set(certificate("server", odd)) })
		s.sees(p, soon, "a NACK", func(rs tap.Records) bool { return len(rs.NACKs("SDS")) == 1 })
		s.quiet()
		if err := anew.gets(answer{"a", "certificate 4"})(); err != nil {
			t.Error("with the last good certificate:", err)
		}
		s.commit("certificate 4 again", func(w world) { w.set(certificate("server", last)) })
		s.sees(p, soon, "an ACK", func(rs tap.Records) bool { return len(rs.ACKs("SDS")) == 1 })
		s.quiet()

		// Envoy keeps deleted secrets, whether or not it gets the removal (delta).
		p = s.commit("certificate deleted, other moves", func(w world) {
			w.drop(certificate("server", pair{}))
			w.set(assignment("other", s.a.port))
		})
		eventually(t, soon, "the next change arrives", s.side.gets(answer{"a", "1"}))
		if v.delta() {
			s.sees(p, grace+soon, "told of it", func(rs tap.Records) bool { return len(removals(rs, "SDS", "server")) == 1 })
		}
		s.quiet()
		if err := anew.gets(answer{"a", "certificate 4"})(); err != nil {
			t.Error("with the deleted certificate:", err)
		}
		s.commit("certificate 5", func(w world) { w.set(certificate("server", servers.issue(t, "certificate 5"))) })
		eventually(t, soon, "new connections see it", anew.gets(answer{"a", "certificate 5"}))
		s.quiet()
		l.Unharmed(t)
		l2.Unharmed(t)

		next := newAuthority(t, "next")
		p = s.commit("another authority for clients", func(w world) { w.set(trust("clients", next)) })
		eventually(t, soon, "its clients are served", next.caller(t, s.ingressPort, false, servers).gets(answer{"a", "certificate 5"}))
		eventually(t, soon, "the others are not", anew.fails("certificate"))
		if err := kept.gets(answer{"a", "certificate 1"})(); err != nil {
			t.Error("a connection that stood before:", err)
		}
		s.quiet()
		carries(t, "SDS clients", s.Since(p).Responses())
		s.listenerChanges()
		exactly(t, 1, "NACK", s.Since(0).NACKs())
		recorded(t, "envoy/SDS "+v.String(), s.Since(0).About("SDS"))
		if log, err := os.ReadFile(s.daemon.log); err != nil || bytes.Contains(log, bytes.Split(odd.key, []byte("\n"))[1]) || bytes.Contains(log, []byte("BEGIN")) {
			t.Error("SAFE-6: the daemon's log holds what is in secrets", err)
		}
	})
}

// The trusted authorities of clusters change under traffic, and so do their certificates.
func TestSecretsOfClusters(t *testing.T) {
	t.Parallel()
	everywhere(t, "SOTW-9 DELTA-12 WARM-1 trust moves on while clusters change", func(t *testing.T, v variant) {
		old, next, clients := newAuthority(t, "old"), newAuthority(t, "next"), newAuthority(t, "clients")
		s := newSite(t, sourcedBy(v, renamed), func(w world) {
			w.set(secureCluster("backend", time.Second), trust("servers", old), certificate("client", clients.issue(t, "envoy")))
		})
		s.a, s.b = newSecureUpstream(t, "a", old, clients), newSecureUpstream(t, "b", next, clients)
		s.commit("backend by TLS", func(w world) { w.set(assignment("backend", s.a.port)) })
		s.start(v)
		l := loaded(t, s.ingress, nil)
		s.commit("the cluster changes", func(w world) { w.set(secureCluster("backend", 2*time.Second)) })
		eventually(t, soon, "the change is active", s.envoy.inForce("backend", "2s"))
		s.quiet()
		p := s.commit("both authorities", func(w world) { w.set(trust("servers", old, next)) })
		s.sees(p, soon, "an ACK", func(rs tap.Records) bool { return len(rs.ACKs("SDS")) == 1 })
		carries(t, "SDS servers", s.Since(p).Responses())
		s.commit("backend moves to one that the next has signed", func(w world) { w.set(assignment("backend", s.b.port)) })
		eventually(t, soon, "traffic moves", s.ingress.gets(answer{"b", "1"}))
		p = s.commit("the next authority alone, another certificate", func(w world) {
			w.set(trust("servers", next), certificate("client", clients.issue(t, "envoy 2")))
		})
		s.sees(p, soon, "an ACK", func(rs tap.Records) bool { return len(rs.ACKs("SDS")) > 0 })
		s.quiet()
		l.Unharmed(t)
		s.commit("back to one that the old has signed", func(w world) { w.set(assignment("backend", s.a.port)) })
		eventually(t, soon, "it is not trusted", s.ingress.fails("503"))
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}

// A listener from LDS subscribes to its secrets in one request. A listener of the bootstrap adds
// them one by one: [server], then [clients server], before any answer.
func TestSecretsOfBootstrap(t *testing.T) {
	t.Parallel()
	each(t, "SOTW-7 SOTW-10 secrets asked for one by one", func(t *testing.T, v variant) {
		servers, clients := newAuthority(t, "servers"), newAuthority(t, "clients")
		s := newSite(t, renamed, func(w world) {
			w.set(certificate("server", servers.issue(t, "certificate 1")), trust("clients", clients))
		})
		port := freePort(t)
		s.start(v, func(b bootstrap) {
			l := httpListener("secure", port, "ingress")
			secure(l)
			text, err := protojson.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			b["static_resources"].(map[string]any)["listeners"] = []any{json.RawMessage(text)}
		})
		eventually(t, soon, "it serves", clients.caller(t, port, false, servers).gets(answer{"a", "certificate 1"}))
		s.quiet()
		if v.delta() {
			exactly(t, 2, "request for a secret", s.Since(0).Requests("SDS").Where(func(r tap.Record) bool { return len(r.Subscribe) == 1 }))
		} else {
			exactly(t, 2, "request before any answer", s.Since(0).Requests("SDS").Where(func(r tap.Record) bool { return r.Nonce == "" }))
		}
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}

// Without an answer, Envoy's start would wait 15 s.
func TestSecretMissingAtStart(t *testing.T) {
	t.Parallel()
	among(t, "DELTA-7 a missing secret is told at once", func(t *testing.T, v variant) {
		servers, clients := newAuthority(t, "servers"), newAuthority(t, "clients")
		s := newSite(t, sourcedBy(v, renamed), func(w world) {
			l := w["Listener/ingress"].(*listener.Listener)
			secure(l)
			w.set(trust("clients", clients))
		})
		s.boot(v)
		eventually(t, prompt, "the other listener serves", s.side.gets(answer{"b", "1"}))
		call := clients.caller(t, s.ingressPort, false, servers)
		if err := call.gets(answer{"a", "certificate 1"})(); err == nil {
			t.Error("served without a certificate")
		}
		s.commit("the certificate comes", func(w world) { w.set(certificate("server", servers.issue(t, "certificate 1"))) })
		eventually(t, prompt, "the change is active", call.gets(answer{"a", "certificate 1"}))
		s.quiet()
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	}, delta, ownDelta)
}

// secureSite is a site whose ingress shows the certificate that the secret
// server holds, and serves clients that the secret clients trusts.
func secureSite(t *testing.T, v variant) (s *site, servers, clients authority) {
	t.Helper()
	servers, clients = newAuthority(t, "servers"), newAuthority(t, "clients")
	s = newSite(t, sourcedBy(v, renamed), func(w world) {
		secure(w["Listener/ingress"].(*listener.Listener))
		w.set(certificate("server", servers.issue(t, "certificate 1")), trust("clients", clients))
	})
	s.ingress = clients.caller(t, s.ingressPort, true, servers)
	s.startAs(v, answer{"a", "certificate 1"})
	return s, servers, clients
}

// secure adds TLS with certificates on both sides to a listener.
func secure(l *listener.Listener) {
	l.FilterChains[0].TransportSocket = &core.TransportSocket{
		Name: "envoy.transport_sockets.tls",
		ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: pack(&envoytls.DownstreamTlsContext{
			RequireClientCertificate: wrapperspb.Bool(true),
			CommonTlsContext:         secrets("server", "clients"),
		})},
	}
}

func certificate(name string, p pair) *envoytls.Secret {
	return &envoytls.Secret{Name: name, Type: &envoytls.Secret_TlsCertificate{TlsCertificate: &envoytls.TlsCertificate{
		CertificateChain: inline(p.certificate), PrivateKey: inline(p.key),
	}}}
}

func trust(name string, authorities ...authority) *envoytls.Secret {
	var all []byte
	for _, a := range authorities {
		all = append(all, a.pair.certificate...)
	}
	return &envoytls.Secret{Name: name, Type: &envoytls.Secret_ValidationContext{ValidationContext: &envoytls.CertificateValidationContext{
		TrustedCa: inline(all),
	}}}
}

// secureCluster is an edsCluster by TLS, with the secrets servers and client.
func secureCluster(name string, timeout time.Duration) *cluster.Cluster {
	c := edsCluster(name, timeout)
	c.TransportSocket = &core.TransportSocket{
		Name: "envoy.transport_sockets.tls",
		ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: pack(&envoytls.UpstreamTlsContext{
			Sni:              "e2e.example",
			CommonTlsContext: secrets("client", "servers"),
		})},
	}
	return c
}

// secrets returns a TLS context with an own certificate and trusted authorities, both from secrets.
func secrets(own, others string) *envoytls.CommonTlsContext {
	by := func(name string) *envoytls.SdsSecretConfig {
		return &envoytls.SdsSecretConfig{Name: name, SdsConfig: ads()}
	}
	return &envoytls.CommonTlsContext{
		TlsCertificateSdsSecretConfigs: []*envoytls.SdsSecretConfig{by(own)},
		ValidationContextType:          &envoytls.CommonTlsContext_ValidationContextSdsSecretConfig{ValidationContextSdsSecretConfig: by(others)},
	}
}

func inline(b []byte) *core.DataSource {
	return &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: b}}
}
