package bootstrap

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/jwt"

	"github.com/chancery-xds/chancery/internal/auth/certs"
)

// channelCredentials uses the first supported kind in channel_creds: "the client will stop at the first
// type that it supports".
func (g *grpcReader) channelCredentials(f field, r *grpcServer) error {
	all, err := f.list()
	if err != nil {
		return err
	}
	var kinds []string
	for _, f := range all {
		o, err := f.object()
		if err != nil {
			return err
		}
		var kind string
		if err := o.text("type", &kind); err != nil {
			return err
		}
		config := o.get("config")
		switch make := g.Credentials[kind]; {
		case make != nil:
			var raw json.RawMessage
			if config.set() {
				raw = config.data
			}
			r.credentials, r.perRPC, err = make(raw)
			if err != nil {
				return g.errorf(f.path, "%s: %w", kind, err)
			}
			return nil
		case kind == "insecure":
			r.credentials = insecure.NewCredentials()
			return nil
		case kind == "tls":
			r.credentials, err = g.tls(config)
			return err
		}
		kinds = append(kinds, kind)
	}
	return g.errorf(f.path, "%s", unsupported(kinds))
}

func unsupported(kinds []string) string {
	if len(kinds) == 0 {
		return "at least one is needed, such as {\"type\": \"tls\"}"
	}
	text := fmt.Sprintf("none of %q is supported: use insecure or tls", kinds)
	if strings.Contains(strings.Join(kinds, " "), "google_default") {
		text += "; google_default needs Google's libraries, which this program does not link (bootstrap.Options.Credentials)"
	}
	return text
}

// A65: "The default value is "600s"."
const defaultRefresh = 600 * time.Second

// tls reads the configuration of tls credentials (gRFC A65).
func (g *grpcReader) tls(f field) (credentials.TransportCredentials, error) {
	o, err := f.object()
	if err != nil {
		return nil, err
	}
	files := certs.ClientFiles{Every: defaultRefresh}
	for name, into := range map[string]*string{"ca_certificate_file": &files.CA, "certificate_file": &files.Cert, "private_key_file": &files.Key} {
		if err := o.text(name, into); err != nil {
			return nil, err
		}
	}
	every := o.get("refresh_interval")
	if d, err := every.duration(); err != nil {
		return nil, err
	} else if every.set() {
		files.Every = d
	}
	if (files.Cert == "") != (files.Key == "") {
		return nil, g.errorf(f.path, "certificate_file and private_key_file must be given together")
	}
	if o.get("spiffe_trust_bundle_map_file").set() {
		return nil, g.errorf(o.get("spiffe_trust_bundle_map_file").path, "is not supported: name a ca_certificate_file")
	}
	return certs.ClientCredentials(files, g.Log), nil
}

// callCredentials uses all supported call_creds and ignores the others (gRFC A97).
func (g *grpcReader) callCredentials(f field, r *grpcServer) error {
	all, err := f.list()
	if err != nil {
		return err
	}
	for _, f := range all {
		o, err := f.object()
		if err != nil {
			return err
		}
		var kind, path string
		if err := o.text("type", &kind); err != nil {
			return err
		}
		if kind != "jwt_token_file" {
			continue
		}
		config, err := o.get("config").object()
		if err != nil {
			return err
		}
		at := config.get("jwt_token_file").path
		if err := config.text("jwt_token_file", &path); err != nil {
			return err
		}
		token, err := jwt.NewTokenFileCallCredentials(path)
		if err != nil {
			return g.errorf(at, "the path of a file with a token is needed")
		}
		r.perRPC = append(r.perRPC, token)
	}
	return nil
}
