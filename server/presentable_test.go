package server

import (
	"encoding/base64"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/internal/testkit/apitest"
	"github.com/chancery-xds/chancery/internal/testkit/secrettest"
	"github.com/chancery-xds/chancery/xds"
)

// A field that the API marks as sensitive is never shown, in any form in which a client may dump it.
func TestPresentableSecrets(t *testing.T) {
	base := base64.StdEncoding.EncodeToString([]byte(secrettest.Canary))
	place := regexp.MustCompile(`(?i)filename|environment_?variable|watched_?directory`) // which has no value
	n := secrettest.Every(t, "SAFE-6", secrets.Marked, func(t *testing.T, m proto.Message, _ protoreflect.FieldDescriptor) {
		packed, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		js, err := apitest.JSON(packed)
		if err != nil {
			t.Fatal(err)
		}
		if place.Match(js) && !strings.Contains(string(js), "inline") {
			return
		}
		for _, dump := range []string{apitest.Text(packed), strings.Join(strings.Fields(apitest.Text(packed)), " "), string(js)} {
			for _, text := range []string{
				"Error adding listener: " + dump,
				"Error adding listener: " + marker + "only \n" + dump + "\n: the cause",
				"failed (E): " + dump[:len(dump)-len(dump)/4], // cut
			} {
				shown := presentable(xds.Listener, text)
				if strings.Contains(shown, secrettest.Canary) || strings.Contains(shown, base) {
					t.Errorf("SAFE-6 %s\nshown of\n%s", shown, text)
				}
			}
		}
	})
	if n < 38 {
		t.Error(n, "fields")
	}
	for _, typ := range []*xds.Type{xds.Secret, xds.Secret.Legacy()} {
		if got := presentable(typ, secrettest.Canary); got != withheld {
			t.Error("SAFE-6", typ.URL, got)
		}
	}
	// The name of a resource is not a secret, and shows where the mistake is.
	const plain = `filter chain: name: "edge" refers to unknown cluster "x": 'route: y'`
	if got := presentable(xds.Listener, plain); got != plain {
		t.Error(got)
	}
}
