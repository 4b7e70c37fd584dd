package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/envoy/importer"
	"github.com/chancery-xds/chancery/internal/listen"
)

// MarkEnvoyAdmin says that a flag --admin is of an Envoy: that of other commands is of the server.
func MarkEnvoyAdmin(f *pflag.FlagSet) {
	Annotate(f.Lookup("admin"), OwnVariable, VariablePrefix+"ENVOY_ADMIN")
}

// EnvoyConfigDump asks the admin interface of an Envoy for its config_dump, with endpoints.
func EnvoyConfigDump(ctx context.Context, a listen.Address, most int64) (importer.File, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	SilenceHTTPLog()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	host := "envoy"
	if a.Network == "unix" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", a.Path)
		}
	} else {
		host = a.String()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/config_dump?include_eds", http.NoBody)
	if err != nil {
		return importer.File{}, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		if adminclient.NoHTTP1(err) { // with bytes of HTTP/2
			return importer.File{}, Fail(fmt.Errorf("ask Envoy at %s: what answers there speaks no HTTP/1.1", a), "is it a port of gRPC, and not that of Envoy's admin interface?")
		}
		return importer.File{}, Fail(fmt.Errorf("ask Envoy at %s: %w", a, errors.Unwrap(err)), "is that the address of its admin interface?")
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return importer.File{}, Fail(fmt.Errorf("ask Envoy at %s: /config_dump answers %s", a, response.Status), "is that the address of its admin interface?")
	}
	return importer.Read("config_dump of "+a.String(), response.Body, most)
}
