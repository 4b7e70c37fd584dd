package xdsclient

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

func TestMemoryCheck(t *testing.T) {
	field := func(num protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), value)
	}
	const checks, metadata = 8, 25
	deep := []byte{}
	for range 2 * maxNesting {
		deep = field(1, append(field(1, []byte("k")), field(2, field(5, deep))...)) // a Struct in a Struct
	}
	hidden := bytes.Repeat(field(checks, nil), 1000)
	anyOf := append(field(1, []byte(xds.Cluster.URL)), field(2, hidden)...)
	for name, tt := range map[string]struct {
		body []byte
		fits bool
	}{
		"SAFE-14 a few messages":          {bytes.Repeat(field(checks, nil), 100), true},
		"SAFE-14 many messages":           {hidden, false},
		"SAFE-14 many messages in Any":    {field(metadata, field(2, append(field(1, []byte("k")), field(2, anyOf)...))), false},
		"SAFE-14 many levels":             {field(metadata, field(1, append(field(1, []byte("k")), field(2, deep)...))), false},
		"SAFE-14 malformed":               {[]byte{0xff}, true},
		"SAFE-14 an unknown field":        {field(10_000, hidden), true},
		"SAFE-14 a field of a wrong type": {[]byte{checks << 3, 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := MemoryCheck(envoy.Envoy(), xds.MemoryLimit{Bytes: 100 << 10, Hint: "--more"})(xds.NewResource(xds.Cluster, "a", tt.body))
			if _, over := errors.AsType[*xds.LimitError](err); over == tt.fits {
				t.Errorf("%v", err)
			}
		})
	}
	if err := MemoryCheck(envoy.Envoy(), xds.MemoryLimit{})(xds.NewResource(xds.Cluster, "a", hidden)); err != nil {
		t.Errorf("without a limit: %v", err)
	}
}
