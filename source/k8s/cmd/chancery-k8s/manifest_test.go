package main

import (
	"io"
	"os"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/chancery-xds/chancery/source/k8s"
)

// The arguments of the example manifest are valid.
func TestManifestArguments(t *testing.T) {
	b, err := os.ReadFile("../../../../deploy/chancery-k8s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for text := range strings.SplitSeq(string(b), "\n---\n") {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		d, ok := o.(*apps.Deployment)
		if !ok {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			if c.Name != "chancery-k8s" {
				continue
			}
			found++
			var f flags
			set := f.set(io.Discard)
			if err := set.Parse(c.Args); err != nil {
				t.Error(err)
			}
			for _, text := range set.Args() {
				if _, err := k8s.ParseMapping(text); err != nil {
					t.Error(err)
				}
			}
			if set.NArg() == 0 {
				t.Error("no cluster")
			}
		}
	}
	if found != 1 {
		t.Errorf("%d containers", found)
	}
}
